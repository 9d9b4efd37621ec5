"""The doctor: what it finds, that its commands mend it, and that it opens, changes and shows
nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesh.control.instance_key import CONTEXT
from mesh.kernel.clock import DAY_MS, MINUTE_MS
from mesh.kernel.limits import CAP_MAX, TOKENS_PER_DAY_MAX, TURNS_PER_DAY_MAX
from mesh.storage import keys
from mesh.storage.clients import SessionClients
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import delete, update
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import Made, System

DOCTOR = "/api/instance/doctor"


class Patient:
    """An instance that is well: its sweep runs, and it has two admins."""

    def __init__(self) -> None:
        self.system = System()
        self.made = self.system.make_install()
        self.api = admin(self.system)
        body = {"name": "second", "role": "admin", "expires_in_days": 3650}
        self.other = Api(self.system, self.api.ok("POST", "/api/operators", body)["token"])
        self.api.ok("POST", "/api/operators", body | {"name": "bootstrap"})
        self.system.stack.tick()

    @property
    def one(self) -> str:
        return f"/api/connectors/{self.made.install_id}"

    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.other.ok("GET", DOCTOR + cursor)
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            cursor = f"?cursor={page['next_cursor']}"

    def codes(self) -> set[str]:
        return {each["code"] for each in self.findings()}

    def row(self, key: keys.Key, **values: Any) -> None:
        sets = ", ".join(f"#{name} = :{name}" for name in values)
        self.system.table.write(update(key, f"SET {sets}", **values))


def test_an_instance_that_is_well_has_no_findings() -> None:
    assert Patient().findings() == []


def test_the_doctor_is_an_admins() -> None:
    patient = Patient()
    for role in ("operator", "viewer"):
        assert error_of(minted(patient.api, role, ["ada"])("GET", DOCTOR)) == "forbidden"


# ---- what is found, and what mends it


def held(patient: Patient) -> None:
    patient.api.ok("POST", "/api/instance/restore/finish")
    patient.other = patient.api
    patient.system.run(60, step_s=10)


def failed_to_enable(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/disable")
    patient.system.receiver(answer(500), answer(204))
    assert patient.api.ok("POST", f"{patient.one}/enable")["state"] == "error"


def paused_delivery(patient: Patient) -> None:
    patient.system.receiver(answer(410), answer(204))
    patient.system.say(patient.made, "hello")
    patient.system.run(10, step_s=5)


def gave_up(patient: Patient) -> None:
    patient.system.receiver(*[answer(404)] * 5, answer(204))
    patient.system.say(patient.made, "hello")
    patient.system.run(3600, step_s=60)


def enable(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/enable", {})


def resume(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/resume-delivery")


def replay(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/outbox/replay", {"status": ["dead"]})
    patient.system.run(120, step_s=10)


def rotated(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/rotate", {})


def pause_agent(patient: Patient) -> None:
    patient.api.ok("POST", "/api/agents/ada/pause")


def resume_agent(patient: Patient) -> None:
    patient.api.ok("POST", "/api/agents/ada/resume")


def another_model(patient: Patient) -> None:
    body = {"model": {"kind": "anthropic", "name": "m"}, "version": 1}
    patient.api.ok("PUT", "/api/agents/ada", body)


def give_key(patient: Patient) -> None:
    patient.api.ok("PUT", "/api/agents/ada/model-key", {"value": "canary-model-key"})


def damaged(patient: Patient) -> None:
    patient.row(keys.secret(patient.made.install_id, 1), blob=b"damaged")


def rotate_at_once(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/rotate", {"overlap_seconds": 0, "force": True})


def small_cap(patient: Patient) -> None:
    shown = patient.api.ok("GET", patient.one)
    body = {"name": "x", "caps": shown["caps"] | {"conversations": 1}, "version": 1}
    patient.api.ok("PUT", patient.one, body)
    patient.system.say(patient.made, "hello")
    patient.system.settle()


def greater_cap(patient: Patient) -> None:
    shown = patient.api.ok("GET", patient.one)
    body = {"name": "x", "caps": shown["caps"] | {"conversations": 2}, "version": 2}
    patient.api.ok("PUT", patient.one, body)


def small_budget(patient: Patient) -> None:
    patient.api.ok("PUT", "/api/agents/ada", {"limits": {"turns_per_day": 1}, "version": 1})
    patient.system.say(patient.made, "hello")
    patient.system.settle()


def greater_budget(patient: Patient) -> None:
    patient.api.ok("PUT", "/api/agents/ada", {"limits": {"turns_per_day": 2}, "version": 2})


def end_overlap(patient: Patient) -> None:
    patient.api.ok("POST", f"{patient.one}/end-overlap")


def older_key(patient: Patient) -> None:
    """The instance key is wrapped by a master key that is not the newest."""
    system = patient.system
    clients = SessionClients(system.aws.session())
    older = KmsWrapper(lambda: clients.kms, system.aws.create_key("older"))
    row = system.table.get(keys.instance_key()) or {}
    patient.row(keys.instance_key(), wrapped=older.rewrap(row["wrapped"], CONTEXT))


def rewrap(patient: Patient) -> None:
    patient.api.ok("POST", "/api/instance/rewrap")


def token_that_ends(patient: Patient) -> None:
    body = {"name": "Grace", "role": "viewer", "expires_in_days": 7}
    patient.api.ok("POST", "/api/operators", body)


def another_token(patient: Patient) -> None:
    patient.api.ok("POST", "/api/operators", {"name": "Grace", "role": "viewer"})


def deaf_webhook(patient: Patient) -> None:
    set_webhook(patient, "https://pager.example/deaf", 500)
    paused_delivery(patient)
    patient.system.run(120, step_s=10)


def another_webhook(patient: Patient) -> None:
    set_webhook(patient, "https://pager.example/told", 204)


def set_webhook(patient: Patient, url: str, status: int) -> None:
    patient.system.egress.script(url, answer(status))
    settings = patient.api.ok("GET", "/api/instance/settings")
    names = ("allow_hosts", "retention_days", "version")
    body = {name: settings[name] for name in names} | {"operator_webhook_url": url}
    patient.api.ok("PUT", "/api/instance/settings", body)


def narrowed(patient: Patient) -> None:
    """The instance lets other hosts be called than the one that replies go to."""
    settings(patient, allow_hosts=["other.example"])


def widened(patient: Patient) -> None:
    settings(patient, allow_hosts=["*.example"])


def narrowed_for_models(patient: Patient) -> None:
    model = {"kind": "openai", "name": "m", "base_url": "https://models.test/v1"}
    patient.api.ok("PUT", "/api/agents/ada", {"model": model, "version": 1})
    settings(patient, allow_hosts=["receiver.example"])


def another_base_url(patient: Patient) -> None:
    model = {"kind": "openai", "name": "m", "base_url": "https://receiver.example/v1"}
    patient.api.ok("PUT", "/api/agents/ada", {"model": model, "version": 2})


def settings(patient: Patient, **changed: Any) -> None:
    """The instance's settings with these in the place of theirs, once they hold everywhere."""
    stands = patient.api.ok("GET", "/api/instance/settings")
    body = {"retention_days": None, "version": stands["version"]} | changed
    patient.api.ok("PUT", "/api/instance/settings", body)
    patient.system.clock.forward(2)


SEARCH = {
    "mode": "custom",
    "provider": "brave",
    "limits": {"requests_per_minute": 60, "requests_per_run": 20},
}


def search_without_a_key(patient: Patient) -> None:
    """As a table that was mended by hand may leave it; no change of settings does."""
    body = SEARCH | {"api_key": "canary-provider-key", "version": 0}
    patient.api.ok("PUT", "/api/agents/ada/web-access/search", body)
    key = keys.provider_key(patient.system.agent.agent_id, "brave")
    patient.system.table.write(delete(key))


def give_provider_key(patient: Patient) -> None:
    for path in ("/api/web-access", "/api/agents/ada/web-access"):
        stands = patient.api.ok("GET", f"{path}/search")["settings"]
        if stands is not None:
            body = SEARCH | {"api_key": "canary-provider-key", "version": stands["version"]}
            patient.api.ok("PUT", f"{path}/search", body)


def search_with_a_key_of_another_address(patient: Patient) -> None:
    body = SEARCH | {"api_key": "canary-provider-key", "version": 0}
    patient.api.ok("PUT", "/api/web-access/search", body)
    patient.row(keys.provider_key("instance", "brave"), name="brave https://old.example")


def search_by_a_provider_of_before(patient: Patient) -> None:
    body = SEARCH | {"api_key": "canary-provider-key", "version": 0}
    patient.api.ok("PUT", "/api/web-access/search", body)
    patient.row(keys.connection("instance", "search"), provider="gone")


def disable_search(patient: Patient) -> None:
    patient.api.ok("PUT", "/api/web-access/search", {"mode": "disabled", "version": 1})


MENDED: dict[str, tuple[Callable[[Patient], None], str, str, Callable[[Patient], None]]] = {
    "connector_held": (held, "warning", "mesh connector enable ins", enable),
    "connector_error": (failed_to_enable, "error", "mesh connector enable ins", enable),
    "delivery_paused": (paused_delivery, "error", "mesh connector resume-delivery ins", resume),
    "replies_dead": (gave_up, "warning", "mesh outbox replay --connector ins", replay),
    "delivery_url_refused": (
        narrowed,
        "error",
        "mesh connector update ins --delivery-url URL",
        widened,
    ),
    "model_url_refused": (
        narrowed_for_models,
        "error",
        "mesh agent update ada --model-base-url URL",
        another_base_url,
    ),
    "overlap_open": (rotated, "note", "mesh connector end-overlap ins", end_overlap),
    "agent_paused": (pause_agent, "note", "mesh agent resume ada", resume_agent),
    "model_key_missing": (
        another_model,
        "error",
        "mesh agent update ada --model-key-stdin",
        give_key,
    ),
    "secret_unopenable": (damaged, "error", "mesh connector rotate ins", rotate_at_once),
    "cap_nearly_reached": (small_cap, "warning", "mesh connector update ins", greater_cap),
    "budget_nearly_used": (
        small_budget,
        "warning",
        "mesh agent update ada --turns-per-day 2",
        greater_budget,
    ),
    "web_key_missing": (
        search_without_a_key,
        "error",
        "mesh web set search --agent ada --provider brave --key-stdin",
        give_provider_key,
    ),
    "web_key_elsewhere": (
        search_with_a_key_of_another_address,
        "error",
        "mesh web set search --provider brave --key-stdin",
        give_provider_key,
    ),
    "web_provider_unknown": (
        search_by_a_provider_of_before,
        "error",
        "mesh web disable search",
        disable_search,
    ),
    "not_rewrapped": (older_key, "warning", "mesh secret rewrap", rewrap),
    "webhook_failing": (
        deaf_webhook,
        "warning",
        "mesh instance set --webhook-url-stdin",
        another_webhook,
    ),
    "token_ends": (
        token_that_ends,
        "warning",
        "mesh operator create Grace --role viewer",
        another_token,
    ),
}


@pytest.mark.parametrize("code", MENDED)
def test_what_is_found_is_mended_by_the_command_that_is_named(code: str) -> None:
    patient = Patient()
    harm, severity, command, mend = MENDED[code]
    harm(patient)
    (finding,) = [each for each in patient.findings() if each["code"] == code]
    assert finding["severity"] == severity
    assert finding["command"].replace(patient.made.install_id, "ins").startswith(command)
    mend(patient)
    assert code not in patient.codes()


def test_notices_are_not_said_to_wait_for_a_webhook_when_they_were_given_up() -> None:
    patient = Patient()
    deaf_webhook(patient)

    def told() -> str:
        (found,) = [each for each in patient.findings() if each["code"] == "webhook_failing"]
        return str(found["text"])

    assert "notices wait for it" in told()
    patient.system.run(26 * 3600, step_s=1800)
    assert "what waited was given up" in told()


def test_no_command_asks_for_more_than_there_is() -> None:
    """A cap at its highest has no higher one; a budget at its highest can only be taken away."""
    patient = Patient()
    body = {"name": "x", "caps": {"conversations": CAP_MAX - 1}, "version": 1}
    patient.api.ok("PUT", patient.one, body)
    limits = {"turns_per_day": TURNS_PER_DAY_MAX - 1, "tokens_per_day": TOKENS_PER_DAY_MAX}
    patient.api.ok("PUT", "/api/agents/ada", {"limits": limits, "version": 1})
    patient.system.say(patient.made, "hello")
    patient.system.settle()
    for row in patient.system.rows("COUNT#conversation"):
        patient.row(keys.Key(row["pk"], row["sk"]), n=CAP_MAX)
    for row in patient.system.rows("DAY"):
        day = keys.Key(row["pk"], row["sk"])
        patient.row(day, turns=TURNS_PER_DAY_MAX - 1, tokens=TOKENS_PER_DAY_MAX)

    def named() -> dict[str, str | None]:
        found = patient.findings()
        return {f"{each['code']} {each['text'].split()[3]}": each["command"] for each in found}

    one = f"mesh connector update {patient.made.install_id} --max-conversations {CAP_MAX}"
    assert named() == {
        "cap_nearly_reached conversations": one,
        "budget_nearly_used turns": f"mesh agent update ada --turns-per-day {TURNS_PER_DAY_MAX}",
        "budget_nearly_used tokens": "mesh agent update ada --tokens-per-day none",
    }
    patient.api.ok("PUT", patient.one, body | {"caps": {"conversations": CAP_MAX}, "version": 2})
    assert named()["cap_nearly_reached conversations"] is None


def test_a_sweep_that_never_ran_is_found_once_the_instance_is_older_than_a_few_minutes() -> None:
    system = System()
    api = admin(system)
    assert [each["code"] for each in api.ok("GET", DOCTOR)["items"]] == ["one_admin"]
    system.clock.forward(4 * MINUTE_MS / 1000)
    assert "sweep_late" in [each["code"] for each in api.ok("GET", DOCTOR)["items"]]


def test_a_sweep_that_stopped_and_work_that_waits_for_it_are_found() -> None:
    patient = Patient()
    patient.system.say(patient.made, "hello")
    patient.system.clock.forward(3600)
    assert patient.codes() >= {"sweep_late", "work_late"}
    patient.system.run(300, step_s=60)
    assert patient.findings() == []


def test_a_long_change_that_does_not_move_is_found() -> None:
    patient = Patient()
    job = patient.api.ok("POST", "/api/instance/restore/finish")["job_id"]
    patient.other = patient.api
    patient.system.clock.forward(3600)
    found = {each["code"]: each for each in patient.findings()}
    assert found["job_stuck"]["command"] == f"mesh job show {job}"
    assert found["restore_running"]["subject"] == job


def test_old_secrets_one_admin_and_callers_with_wrong_clocks_are_found() -> None:
    patient = Patient()
    late = str(patient.system.clock.now_ms() // 1000 - 400)
    assert patient.system.post(patient.made, b"{}", timestamp=late).status == 401
    (clock,) = patient.findings()
    assert (clock["code"], clock["severity"]) == ("caller_clock", "warning")
    assert "400 s behind" in clock["text"]
    who = patient.api.ok("GET", "/api/whoami")["id"]
    for each in patient.api.ok("GET", "/api/operators")["items"]:
        if each["id"] not in (who, patient.other.ok("GET", "/api/whoami")["id"]):
            patient.api.ok("DELETE", f"/api/operators/{each['id']}")
    patient.other.ok("DELETE", f"/api/operators/{who}")
    patient.system.clock.forward(366 * DAY_MS / 1000)
    assert patient.codes() >= {"one_admin", "secret_old"}


def test_a_key_that_cannot_be_used_is_one_finding_and_not_one_for_each_connector() -> None:
    patient = Patient()
    patient.system.make_install()
    patient.system.clock.forward(6 * MINUTE_MS / 1000)  # longer than a function keeps it open
    patient.system.aws.kms.call("DisableKey", {"KeyId": patient.system.stack.settings.secrets_key})
    codes = [each["code"] for each in patient.findings() if each["code"] != "sweep_late"]
    assert codes == ["instance_key_unopenable"]


def test_it_goes_through_more_agents_and_connectors_than_one_request_looks_at() -> None:
    patient = Patient()
    for number in range(12):
        agent = patient.system.make_agent(f"agent-{number:02d}")
        patient.api.ok("POST", f"/api/agents/{agent.slug}/pause")
    many = patient.system.make_agent("many")
    urlless: list[Made] = [patient.system.make_install(url=None, agent=many) for _ in range(23)]
    found = patient.findings()
    assert sum(each["code"] == "agent_paused" for each in found) == 12
    told = [each["subject"] for each in found if each["code"] == "no_delivery_url"]
    assert sorted(told) == sorted(made.install_id for made in urlless)


def test_nothing_is_changed_and_nothing_that_was_opened_is_shown() -> None:
    patient = Patient()
    rows = list(_stored(patient))
    told = json.dumps(patient.findings())
    assert list(_stored(patient)) == rows
    assert patient.made.secret not in told


def _stored(patient: Patient) -> Iterator[str]:
    return (repr(sorted(item.items())) for item in patient.system.aws.items())
