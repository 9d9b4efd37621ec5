"""The instance's settings through the operator API: who may, what holds, what is never told."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.control.instance_settings import open_webhook
from mesh.kernel.errors import Failed
from mesh.kernel.limits import RETENTION_DAYS_MAX
from mesh.storage import keys
from mesh.storage.writes import update
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import URL, System

SETTINGS = "/api/instance/settings"
CANARY = "canary-0f3b"
HOOK = f"https://hooks.example/{CANARY}"


class Instance:
    """An instance with one agent and tokens of every role."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.operator = minted(self.admin, "operator", ["ada"])
        self.viewer = minted(self.admin, "viewer")

    def get(self) -> Any:
        return self.admin.ok("GET", SETTINGS)

    def put(self, **settings: Any) -> Any:
        """The settings as they stand, with these in the place of theirs."""
        stands = self.get()
        names = ("allow_hosts", "operator_webhook_url", "retention_days", "version")
        return self.admin.ok("PUT", SETTINGS, {n: stands[n] for n in names} | settings)

    def webhook(self) -> tuple[str, str] | None:
        """The webhook as whoever sends notices opens it."""
        opened = open_webhook(self.system.table, self.system.installs._keys)
        return None if opened is None else (opened.url, opened.secret)


@pytest.fixture
def instance() -> Instance:
    return Instance()


def test_without_a_row_the_defaults_stand_at_version_0(instance: Instance) -> None:
    assert instance.get() == {
        "allow_hosts": [],
        "operator_webhook_url": None,
        "retention_days": None,
        "retention_days_default": 90,
        "version": 0,
        "webhook_secret": None,
        "model_keys": [],
    }


def test_a_put_replaces_the_settings_and_names_the_version_that_it_read(
    instance: Instance,
) -> None:
    body = {"allow_hosts": ["*.example", "other.test:8443"], "retention_days": 30, "version": 0}
    changed = instance.admin.ok("PUT", SETTINGS, body)
    assert (changed["allow_hosts"], changed["retention_days"]) == (body["allow_hosts"], 30)
    assert instance.get() == changed
    stale = instance.admin("PUT", SETTINGS, body)
    assert (stale.status, error_of(stale)) == (409, "version_conflict")
    assert instance.get() == changed
    instance.system.clock.forward(1)
    emptied = instance.admin.ok("PUT", SETTINGS, {"version": 1})
    assert (emptied["allow_hosts"], emptied["retention_days"]) == ([], None)
    rows = reversed(instance.admin.every("/api/audit?action=instance.update"))
    told = [(row["target"], row["version_before"], row["version_after"]) for row in rows]
    assert told == [("instance", None, 1), ("instance", 1, 2)]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"allow_hosts": ["fine.example", "https://no.example"]}, "allow_hosts.1"),
        ({"allow_hosts": ["a.example"] * 51}, "allow_hosts"),
        ({"retention_days": 0}, "retention_days"),
        ({"retention_days": RETENTION_DAYS_MAX + 1}, "retention_days"),
        ({"retention_days": "30"}, "retention_days"),
        ({"operator_webhook_url": "http://hooks.example/"}, "operator_webhook_url"),
        ({"operator_webhook_url": "https://169.254.169.254/"}, "operator_webhook_url"),
        ({"operator_webhook_url": HOOK, "allow_hosts": ["o.example"]}, "operator_webhook_url"),
        ({"model_keys": []}, "model_keys"),
        ({"webhook_secret": None}, "webhook_secret"),
    ],
)
def test_what_cannot_be_set_is_refused_by_its_path_and_changes_nothing(
    instance: Instance, body: dict[str, Any], path: str
) -> None:
    response = instance.admin("PUT", SETTINGS, {"version": 0} | body)
    assert response.status == 422
    assert [field["path"] for field in response.json()["error"]["fields"]] == [path]
    assert instance.get()["version"] == 0


def test_settings_and_model_keys_are_an_admins_alone(instance: Instance) -> None:
    for api in (instance.operator, instance.viewer):
        for method, target, body in (
            ("GET", SETTINGS, None),
            ("PUT", SETTINGS, {"version": 0}),
            ("PUT", "/api/instance/model-keys/openai", {"value": "x"}),
            ("DELETE", "/api/instance/model-keys/openai", None),
        ):
            assert error_of(api(method, target, body)) == "forbidden"


# ---- the operators' webhook


def test_a_webhook_is_kept_sealed_and_its_secret_is_shown_once(instance: Instance) -> None:
    made = instance.put(operator_webhook_url=HOOK)
    secret = made["webhook_secret"]
    assert secret.startswith("whsec_")
    assert made["operator_webhook_url"].startswith("https://hooks.example/… ")
    assert instance.webhook() == (HOOK, secret)
    assert instance.get() == made | {"webhook_secret": None}
    stored = repr(list(instance.system.aws.items())) + repr(instance.system.log.events)
    assert CANARY not in stored
    assert secret not in stored


def test_the_same_webhook_keeps_its_secret_and_another_gets_one_of_its_own(
    instance: Instance,
) -> None:
    secret = instance.put(operator_webhook_url=HOOK)["webhook_secret"]
    assert instance.put(retention_days=7)["webhook_secret"] is None, "as GET shows it"
    assert instance.put(operator_webhook_url=HOOK)["webhook_secret"] is None, "as it is"
    left_out = {"version": instance.get()["version"]}
    assert instance.admin.ok("PUT", SETTINGS, left_out)["webhook_secret"] is None
    assert instance.webhook() == (HOOK, secret)
    other = instance.put(operator_webhook_url=f"{HOOK}/other")
    assert instance.webhook() == (f"{HOOK}/other", other["webhook_secret"])
    assert other["webhook_secret"] not in (None, secret)
    assert instance.put(operator_webhook_url=None)["operator_webhook_url"] is None
    assert instance.webhook() is None


def test_a_list_that_the_saved_webhook_does_not_pass_is_refused(instance: Instance) -> None:
    instance.put(operator_webhook_url=HOOK, allow_hosts=["hooks.example"])
    body = {"allow_hosts": ["other.example"], "version": 1}
    response = instance.admin("PUT", SETTINGS, body)
    assert response.status == 422
    assert "operator_webhook_url" in response.body.decode()
    body["operator_webhook_url"] = None  # type: ignore[assignment]
    assert instance.admin.ok("PUT", SETTINGS, body)["version"] == 2


def test_an_opened_webhook_shows_neither_url_nor_secret(instance: Instance) -> None:
    instance.put(operator_webhook_url=HOOK)
    opened = open_webhook(instance.system.table, instance.system.installs._keys)
    assert repr(opened) == "OperatorWebhook()"


def test_a_webhook_that_was_moved_to_another_version_does_not_open(instance: Instance) -> None:
    instance.put(operator_webhook_url=HOOK)
    row = instance.system.table.get(keys.instance_settings())
    assert row is not None
    for part, other in (("url", "secret"), ("secret", "url")):
        moved = row["webhook"] | {part: row["webhook"][other]}
        write = update(keys.instance_settings(), "SET #webhook = :moved", moved=moved)
        instance.system.table.write(write)
        with pytest.raises(Failed, match="does not open"):
            instance.webhook()


# ---- the instance's list of hosts


def test_both_lists_must_pass_where_an_address_is_saved(instance: Instance) -> None:
    instance.put(allow_hosts=["receiver.example"])
    agents = "/api/agents/ada/connectors"
    other = {"kind": "generic", "delivery_url": "https://elsewhere.example/"}
    response = instance.operator("POST", agents, other)
    assert response.status == 422
    assert response.json()["error"]["fields"][0]["path"] == "delivery_url"
    model = {"kind": "openai", "name": "gpt", "base_url": "https://llm.example/v1"}
    response = instance.admin("PUT", "/api/agents/ada", {"model": model, "version": 1})
    assert response.json()["error"]["fields"][0]["path"] == "model.base_url"
    body = {"kind": "generic", "delivery_url": URL, "allow_hosts": ["elsewhere.example"]}
    assert instance.admin("POST", agents, body).status == 422
    assert instance.admin("POST", agents, body | {"allow_hosts": ["*.example"]}).status == 201


def test_a_change_of_the_list_holds_for_deliveries_and_pings_two_seconds_later(
    instance: Instance,
) -> None:
    system = instance.system
    made = system.make_install()
    system.say(made, "hello", "m-1")
    system.settle()
    assert len(system.delivered()) == 1
    instance.put(allow_hosts=["other.example"])
    system.clock.forward(2)
    system.say(made, "hello", "m-2")
    system.settle()
    assert len(system.delivered()) == 1
    ping = instance.admin.ok("POST", f"/api/connectors/{made.install_id}/ping")
    assert (ping["delivered"], "allowlist" in ping["reason"]) == (False, True)
    instance.put(allow_hosts=["receiver.example"])
    system.run(30)
    assert len(system.delivered()) == 2
    assert instance.admin.ok("POST", f"/api/connectors/{made.install_id}/ping")["delivered"]


def test_an_enabling_under_a_list_that_its_url_does_not_pass_ends_in_error(
    instance: Instance,
) -> None:
    body = {"kind": "generic", "delivery_url": URL}
    made = instance.admin.ok("POST", "/api/agents/ada/connectors", body)
    instance.put(allow_hosts=["other.example"])
    instance.system.clock.forward(2)
    path = f"/api/connectors/{made['install_id']}/enable"
    enabled = instance.admin.ok("POST", path)
    assert (enabled["state"], "allowlist" in enabled["state_reason"]) == ("error", True)


def test_a_narrower_list_bars_no_change_of_anything_but_the_address(instance: Instance) -> None:
    """Whoever has to keep an actor out, or to lower a limit, cannot be told to mend a URL first."""
    api, connectors = instance.operator, "/api/agents/ada/connectors"
    body = {"kind": "generic", "delivery_url": URL}
    made = api.ok("POST", connectors, body)
    model = {"kind": "openai", "name": "m", "base_url": "https://models.example/v1"}
    instance.admin.ok("PUT", "/api/agents/ada", {"model": model, "version": 1})
    instance.put(allow_hosts=["other.example"])
    instance.system.clock.forward(2)
    one = f"/api/connectors/{made['install_id']}"
    engagement = {"deny_actors": ["u-42"]}
    put = api.ok("PUT", one, {"name": "x", "engagement": engagement, "version": 1})
    assert (put["engagement"]["deny_actors"], put["version"]) == (["u-42"], 2)
    limits = {"limits": {"runs_at_once": 1}, "model": model, "version": 2}
    assert api.ok("PUT", "/api/agents/ada", limits)["limits"]["runs_at_once"] == 1
    moved = {"name": "x", "delivery_url": f"{URL}/2", "version": 2}
    assert error_of(api("PUT", one, moved)) == "invalid_request"
    moved = {"name": "x", "allow_hosts": ["receiver.example"], "version": 2}
    assert error_of(instance.admin("PUT", one, moved)) == "invalid_request"
    other = {"model": model | {"base_url": "https://models.example/v2"}, "version": 3}
    assert error_of(instance.admin("PUT", "/api/agents/ada", other)) == "invalid_request"


# ---- model keys


MODEL_KEY = "/api/instance/model-keys/openai"


def of_model(api: Api) -> tuple[bool, str | None]:
    model = api.ok("GET", "/api/agents/ada")["model"]
    (listed,) = api.ok("GET", "/api/agents")["items"]
    assert listed["model"] == model
    return model["credential_present"], model["credential_source"]


def test_an_agent_without_a_key_has_the_instances_at_the_kinds_own_origin_alone(
    instance: Instance,
) -> None:
    api = instance.admin

    def model(**wanted: Any) -> None:
        version = api.ok("GET", "/api/agents/ada")["version"]
        api.ok("PUT", "/api/agents/ada", {"model": wanted, "version": version})

    put = api.ok("PUT", MODEL_KEY, {"value": CANARY})
    assert (put["kept_for"], put["version"]) == ("openai https://api.openai.com", 1)
    assert of_model(instance.viewer) == (False, None), "an offline model asks nobody"
    model(kind="openai", name="gpt")
    assert of_model(instance.viewer) == (True, "instance")
    api.ok("PUT", "/api/agents/ada/model-key", {"value": "canary-own"})
    assert of_model(instance.viewer) == (True, "agent")
    api.ok("DELETE", "/api/agents/ada/model-key")
    for base_url in ("https://api.openai.com/v1", "https://llm.example/v1"):
        model(kind="openai", name="gpt", base_url=base_url)
        assert of_model(instance.viewer) == (False, None)
    model(kind="anthropic", name="claude")
    assert of_model(instance.viewer) == (False, None)
    model(kind="openai", name="gpt")
    assert of_model(instance.viewer) == (True, "instance")
    api.ok("DELETE", MODEL_KEY)
    assert of_model(instance.viewer) == (False, None)
    assert error_of(api("DELETE", MODEL_KEY)) == "not_found"


def test_model_keys_are_told_by_kind_version_and_age(instance: Instance) -> None:
    for kind in ("openai", "anthropic", "openai"):
        put = instance.admin.ok("PUT", f"/api/instance/model-keys/{kind}", {"value": CANARY})
    told = instance.get()["model_keys"]
    assert [(each["kind"], each["version"]) for each in told] == [("anthropic", 1), ("openai", 2)]
    assert told[1]["updated_at"] == put["updated_at"]
    rows = instance.admin.every("/api/audit?target=instance/model-keys/openai")
    assert [row["action"] for row in rows] == ["model_key.put"] * 2


@pytest.mark.parametrize(("kind", "status"), [("bedrock", 422), ("offline", 422), ("other", 404)])
def test_a_kind_that_is_asked_without_a_key_takes_none(
    instance: Instance, kind: str, status: int
) -> None:
    path = f"/api/instance/model-keys/{kind}"
    assert instance.admin("PUT", path, {"value": "x"}).status == status
    assert instance.admin("DELETE", path).status == status


@pytest.mark.parametrize("value", ["", "  ", "a b", "é", "x" * 4097, 1, None])
def test_a_value_that_no_header_takes_is_refused(instance: Instance, value: object) -> None:
    assert instance.admin("PUT", MODEL_KEY, {"value": value}).status == 422
    assert instance.get()["model_keys"] == []


@pytest.mark.behaviour("secrets:never-returned")
def test_nothing_that_was_put_comes_back_in_an_answer_a_log_or_a_row(instance: Instance) -> None:
    api, system = instance.admin, instance.system
    stands = {"version": 0, "allow_hosts": ["*.example"]}
    seen = [
        api("PUT", SETTINGS, stands | {"operator_webhook_url": HOOK, "other": 1}).body,
        api("PUT", SETTINGS, stands | {"operator_webhook_url": f"http://h.example/{CANARY}"}).body,
        api("PUT", SETTINGS, stands | {"operator_webhook_url": f"https://h.test/{CANARY}"}).body,
        api("PUT", SETTINGS, stands | {"operator_webhook_url": HOOK}).body,
        api("PUT", SETTINGS, stands | {"operator_webhook_url": HOOK}).body,
    ]
    values = (CANARY, CANARY * 2000, [CANARY], f"{CANARY} é")
    seen += [api("PUT", MODEL_KEY, {"value": value}).body for value in values]
    seen += [api("PUT", MODEL_KEY, raw=b'{"value":"' + CANARY.encode()).body]
    seen += [api("GET", target).body for target in (SETTINGS, "/api/agents", "/api/audit")]
    told = [body.decode() for body in seen]
    told += [repr(system.log.events), repr(list(system.aws.items()))]
    assert len(told) > 10
    assert not [text for text in told if CANARY in text or "0f3b" in text]
