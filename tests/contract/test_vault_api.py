"""What agents keep, through the operator API: who may, what is told, and what is never told."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mesh.kernel.limits import MODEL_KEY_CHARS_MAX, VAULT_VALUE_BYTES_MAX
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import System

CANARY = "canary-0f3b"
VAULT = "/api/agents/bob/vault"
MODEL_KEY = "/api/agents/bob/model-key"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")


class Instance:
    """An instance with two agents, and tokens of each role that reach the first."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.admin.ok("POST", "/api/agents", {"slug": "bob"})
        self.operator = minted(self.admin, "operator", ["bob"])
        self.viewer = minted(self.admin, "viewer", ["bob"])

    def credential_present(self) -> bool:
        present: bool = self.viewer.ok("GET", "/api/agents/bob")["model"]["credential_present"]
        (listed,) = self.viewer.ok("GET", "/api/agents")["items"]
        assert listed["model"]["credential_present"] is present
        return present

    def model(self, **model: Any) -> None:
        version = self.admin.ok("GET", "/api/agents/bob")["version"]
        self.admin.ok("PUT", "/api/agents/bob", {"model": model, "version": version})


@pytest.fixture
def instance() -> Instance:
    return Instance()


def test_a_value_is_put_listed_by_its_name_replaced_and_deleted(instance: Instance) -> None:
    api = instance.operator
    put = api("PUT", f"{VAULT}/github", {"value": CANARY})
    assert put.status == 200
    first = put.json()
    assert (first["name"], first["version"]) == ("github", 1)
    assert set(first) == {"name", "version", "created_at", "updated_at", "account"}
    assert TIME.match(first["created_at"])
    assert first["updated_at"] == first["created_at"]
    instance.system.clock.forward(60)
    second = api.ok("PUT", f"{VAULT}/github", {"value": CANARY + "2"})
    assert (second["version"], second["created_at"]) == (2, first["created_at"])
    assert second["updated_at"] > first["updated_at"]
    assert instance.viewer.ok("GET", VAULT) == {"items": [second], "next_cursor": None}
    gone = api("DELETE", f"{VAULT}/github")
    assert (gone.status, gone.body) == (204, b"")
    assert error_of(api("DELETE", f"{VAULT}/github")) == "not_found"
    assert api.ok("GET", VAULT)["items"] == []


def test_a_vault_is_listed_page_by_page(instance: Instance) -> None:
    for name in "edcba":
        instance.operator.ok("PUT", f"{VAULT}/{name}", {"value": CANARY})
    assert [value["name"] for value in instance.viewer.every(VAULT)] == list("abcde")


@pytest.mark.parametrize("target", [f"{VAULT}/github", MODEL_KEY])
def test_a_viewer_puts_and_deletes_nothing(instance: Instance, target: str) -> None:
    assert error_of(instance.viewer("PUT", target, {"value": CANARY})) == "forbidden"
    assert error_of(instance.viewer("DELETE", target)) == "forbidden"


@pytest.mark.parametrize("target", ["vault", "vault/github", "model-key"])
def test_another_agents_is_as_one_that_is_not_there(instance: Instance, target: str) -> None:
    def asked(slug: str) -> list[tuple[int, str]]:
        path = f"/api/agents/{slug}/{target}"
        methods = ("GET",) if target == "vault" else ("PUT", "DELETE")
        answers = [
            instance.operator(m, path, {"value": CANARY} if m == "PUT" else None) for m in methods
        ]
        return [(a.status, re.sub(r"req_\w+", "", a.body.decode())) for a in answers]

    instance.admin.ok("PUT", "/api/agents/ada/vault/github", {"value": CANARY})
    instance.admin.ok("PUT", "/api/agents/ada/model-key", {"value": CANARY})
    assert asked("ada") == asked("nobody")
    assert {status for status, _ in asked("ada")} == {404}
    assert len(instance.admin.ok("GET", "/api/agents/ada/vault")["items"]) == 1


@pytest.mark.parametrize("target", [f"{VAULT}/github", MODEL_KEY])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"value": ""},
        {"value": " \t\n\u3000"},
        {"value": None},
        {"value": 5},
        {"value": {"a": CANARY}},
        {"value": CANARY, "version": 1},
        {"value": CANARY * 2000},
    ],
)
def test_what_is_no_value_is_refused_without_repeating_it(
    instance: Instance, target: str, body: dict[str, Any]
) -> None:
    response = instance.operator("PUT", target, body)
    assert (response.status, error_of(response)) == (422, "invalid_request")
    assert CANARY not in response.body.decode()
    assert instance.operator.ok("GET", VAULT)["items"] == []
    assert not instance.credential_present()


def test_values_have_bounds_in_bytes_and_keys_in_characters_that_a_header_takes(
    instance: Instance,
) -> None:
    api = instance.operator
    api.ok("PUT", f"{VAULT}/a", {"value": "é" * (VAULT_VALUE_BYTES_MAX // 2)})
    assert (
        api("PUT", f"{VAULT}/a", {"value": "é" * (VAULT_VALUE_BYTES_MAX // 2) + "a"}).status == 422
    )
    api.ok("PUT", f"{VAULT}/a", {"value": "-----BEGIN\nof many lines\n"})
    api.ok("PUT", MODEL_KEY, {"value": "k" * MODEL_KEY_CHARS_MAX})
    for key in ("k" * (MODEL_KEY_CHARS_MAX + 1), "a b", "a\r\nX-Other: y", "é", "key\n"):
        assert api("PUT", MODEL_KEY, {"value": key}).status == 422


@pytest.mark.parametrize("name", ["a" * 65, "a%20b", ".hidden", "%C3%A9", "a%0A", "a%23b"])
def test_a_name_that_no_value_has_is_refused(instance: Instance, name: str) -> None:
    response = instance.operator("PUT", f"{VAULT}/{name}", {"value": CANARY})
    assert (response.status, error_of(response)) == (422, "invalid_request")
    assert [field["path"] for field in response.json()["error"]["fields"]] == ["name"]
    assert instance.operator("DELETE", f"{VAULT}/{name}").status == 404


@pytest.mark.behaviour("secrets:by-provider-and-owner")
def test_a_model_key_is_present_for_the_origin_that_it_was_saved_for(instance: Instance) -> None:
    instance.model(kind="openai")
    assert not instance.credential_present()
    shown = instance.operator.ok("PUT", MODEL_KEY, {"value": CANARY})
    assert shown["credential_present"]
    assert shown["kept_for"] == "openai https://api.openai.com"
    assert instance.credential_present()
    instance.model(kind="openai", name="gpt")
    assert instance.credential_present()
    instance.model(kind="openai", base_url="https://llm.example/v1")
    assert not instance.credential_present()
    instance.model(kind="anthropic")
    assert not instance.credential_present()
    instance.operator.ok("PUT", MODEL_KEY, {"value": CANARY})
    assert instance.credential_present()
    assert instance.operator("DELETE", MODEL_KEY).status == 204
    assert not instance.credential_present()
    assert error_of(instance.operator("DELETE", MODEL_KEY)) == "not_found"


def test_each_change_is_audited_with_its_versions(instance: Instance) -> None:
    for target in (f"{VAULT}/github", MODEL_KEY):
        for method in ("PUT", "PUT", "DELETE"):
            instance.system.clock.forward(1)
            instance.operator.ok(method, target, {"value": CANARY} if method == "PUT" else None)
    told = [
        (row["action"], row["version_before"], row["version_after"])
        for target in ("bob/vault/github", "bob/model-key")
        for row in reversed(instance.admin.every(f"/api/audit?target={target}"))
    ]
    assert told == [
        ("vault.put", None, 1),
        ("vault.put", 1, 2),
        ("vault.delete", 2, None),
        ("model_key.put", None, 1),
        ("model_key.put", 1, 2),
        ("model_key.delete", 2, None),
    ]


@pytest.mark.behaviour("secrets:never-returned")
def test_no_answer_log_or_row_holds_a_value_or_a_piece_of_one(instance: Instance) -> None:
    system = instance.system
    seen = []
    for api in (instance.admin, instance.operator):
        for target in (f"{VAULT}/github", MODEL_KEY):
            seen.append(api("PUT", target, {"value": CANARY}).body)
            seen.append(api("PUT", target, {"value": CANARY * 2000}).body)
            seen.append(api("PUT", target, {"value": [CANARY]}).body)
            seen.append(api("PUT", target, {"value": CANARY, "other": 1}).body)
            seen.append(api("PUT", target, raw=b'{"value":"' + CANARY.encode()).body)
            seen.append(api("PUT", target, {"value": CANARY}, content_type="text/plain").body)
    shown = (VAULT, "/api/agents/bob", "/api/agents", "/api/audit")
    seen += [instance.admin("GET", target).body for target in shown]
    told = [body.decode() for body in seen]
    told += [repr(system.log.events), repr(list(system.aws.items()))]
    assert len(told) > 20
    assert not [text for text in told if CANARY in text or "0f3b" in text]


def test_a_key_service_that_does_not_answer_changes_nothing(instance: Instance) -> None:
    system = instance.system
    kms = system.aws.session("test").create_client("kms")
    kms.disable_key(KeyId=system.stack.settings.secrets_key)
    for target in (f"{VAULT}/github", MODEL_KEY):
        response = instance.operator("PUT", target, {"value": CANARY})
        assert (response.status, error_of(response)) == (503, "unavailable")
    assert instance.operator.ok("GET", VAULT)["items"] == []
    assert not instance.credential_present()


def test_nobody_without_a_token_learns_anything(instance: Instance) -> None:
    api = Api(instance.system, None)
    assert {api("GET", VAULT).status, api("PUT", MODEL_KEY, {"value": "x"}).status} == {401}


# ---- acting accounts


BOT = {"origin": "https://github.com", "name": "mesh-bot"}


@pytest.mark.behaviour("identity:own-accounts", "identity:no-sharing")
def test_an_acting_account_belongs_to_one_agent_alone(instance: Instance) -> None:
    api = instance.admin
    api.ok("POST", "/api/agents", {"slug": "eve"})
    kept = api.ok("PUT", f"{VAULT}/github", {"value": CANARY, "account": BOT})
    assert kept["account"] == BOT
    rows = list(instance.system.aws.items())
    for account in (BOT, BOT | {"name": "Mesh-Bot"}, BOT | {"origin": "https://github.com/"}):
        theirs = {"value": "canary-theirs", "account": account}
        answer = api("PUT", "/api/agents/eve/vault/github", theirs)
        assert (answer.status, error_of(answer)) == (409, "already_exists")
    also = api("PUT", f"{VAULT}/other", {"value": CANARY, "account": BOT})
    assert error_of(also) == "already_exists", "one account has one name"
    assert list(instance.system.aws.items()) == rows
    api.ok(
        "PUT",
        "/api/agents/eve/vault/lab",
        {"value": CANARY, "account": BOT | {"origin": "https://gitlab.com"}},
    )


def test_an_account_stays_with_its_value_until_that_is_forgotten(instance: Instance) -> None:
    api = instance.admin
    api.ok("POST", "/api/agents", {"slug": "eve"})
    api.ok("PUT", f"{VAULT}/github", {"value": CANARY, "account": BOT})
    assert api.ok("PUT", f"{VAULT}/github", {"value": CANARY + "2"})["account"] == BOT
    other = BOT | {"name": "second-bot"}
    assert api.ok("PUT", f"{VAULT}/github", {"value": CANARY, "account": other})["account"] == other
    api.ok("PUT", "/api/agents/eve/vault/github", {"value": CANARY, "account": BOT})
    api.ok("DELETE", f"{VAULT}/github")
    api.ok("PUT", "/api/agents/eve/vault/second", {"value": CANARY, "account": other})
    assert api.ok("POST", "/api/instance/rewrap")["unopenable"] == 0


def test_an_account_of_a_deleted_agent_may_be_anothers(instance: Instance) -> None:
    api = instance.admin
    api.ok("POST", "/api/agents", {"slug": "eve"})
    api.ok("PUT", f"{VAULT}/github", {"value": CANARY, "account": BOT})
    api.ok("POST", "/api/agents/bob/pause")
    api.ok("DELETE", "/api/agents/bob")
    instance.system.run(120, step_s=10)
    api.ok("PUT", "/api/agents/eve/vault/github", {"value": CANARY, "account": BOT})


@pytest.mark.parametrize(
    "origin",
    ["http://github.com", "https://github.com/path", "github.com", "https://", "ftp://x.example"],
)
def test_an_account_is_at_an_origin(instance: Instance, origin: str) -> None:
    account = {"origin": origin, "name": "bot"}
    answer = instance.operator("PUT", f"{VAULT}/github", {"value": CANARY, "account": account})
    assert (answer.status, error_of(answer)) == (422, "invalid_request")
