"""What functions do is what their roles let them do: neither more, nor much less."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from infra import topology
from infra.local.aws import Killed
from infra.local.aws.recorder import Call
from infra.topology import Allow, Secrets
from mesh.storage import keys
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin, minted
from tests.fakes.system import URL, Made, Reply, System
from tests.fakes.web import usual

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"}
READS = {"GetItem", "BatchGetItem", "Query"}
DOCTOR = "operator_doctor"
SECRETS = {
    Secrets.OPEN: "Decrypt",
    Secrets.SEAL: "GenerateDataKey",
    Secrets.SEAL_VALUES: "GenerateDataKey",
    Secrets.SEAL_INSTANCE_VALUES: "GenerateDataKey",
    Secrets.REWRAP: "ReEncrypt",
    Secrets.OPEN_MODEL_KEYS: "Decrypt",
    Secrets.OPEN_PROVIDER_KEYS: "Decrypt",
}


@pytest.fixture(scope="module")
def done() -> dict[str, set[tuple[str, str]]]:
    """Which calls each function made while every route was used and the main job was done."""
    system = System()
    with system.aws.recording() as calls:
        api = admin(system)
        use_agents_and_operators(api)
        made = use_connectors(system, api)
        use_stories(system, api, made)
        system.settle()
        use_a_model(system, api)
        use_web_access(api)
        use_chores(system, api)
        consult_the_doctor(api)
        api.ok("POST", "/api/instance/restore/finish")
        system.settle()
    return {name: set(_of(calls, name)) for name in {call.caller for call in calls}}


def use_agents_and_operators(api: Api) -> None:
    agent = api.ok("POST", "/api/agents", {"slug": "bob"})
    api.ok("PUT", "/api/agents/bob", {"version": agent["version"]})
    api.ok("POST", "/api/agents/bob/pause")
    api.ok("POST", "/api/agents/bob/resume")
    api.ok("GET", "/api/instance/rewrap")
    api.ok("PUT", "/api/instance/settings", {"operator_webhook_url": URL, "version": 0})
    api.ok("PUT", "/api/instance/model-keys/openai", {"value": "canary-kept"})
    for kept in ("vault/github", "model-key"):
        api.ok("PUT", f"/api/agents/bob/{kept}", {"value": "canary-kept"})
        api.ok("GET", "/api/agents/bob/vault")
        api.ok("DELETE", f"/api/agents/bob/{kept}")
    for path in ("/healthz", "/api/whoami", "/api/openapi.json", "/api/agents", "/api/agents/bob"):
        api.ok("GET", path)
    minted(api, "viewer", ["bob"]).ok("GET", "/api/whoami")
    other = api.ok("POST", "/api/operators", {"name": "x", "role": "viewer"})["id"]
    api.ok("PUT", f"/api/operators/{other}", {"name": "y", "role": "viewer", "version": 1})
    api.ok("DELETE", f"/api/operators/{other}")
    api.ok("GET", "/api/operators")
    api.ok("GET", "/api/audit")


def use_connectors(system: System, api: Api) -> Made:
    body = {"kind": "generic", "delivery_url": URL, "enable": True}
    kept = api.ok("POST", "/api/agents/bob/connectors", body)
    system.clock.forward(360)  # longer than a function keeps the key that opens secrets
    api.ok("POST", f"/api/connectors/{kept['install_id']}/ping")
    one = api.ok("POST", "/api/agents/bob/connectors", body)["install_id"]
    api.ok("PUT", f"/api/connectors/{one}", {"delivery_url": URL, "version": 1})
    for verb in ("rotate", "end-overlap", "disable", "enable", "resume-delivery"):
        api.ok("POST", f"/api/connectors/{one}/{verb}")
    api.ok("POST", f"/api/connectors/{one}/plan")
    api.ok("POST", f"/api/connectors/{one}/simulate")
    api.ok("GET", f"/api/connectors/{one}/refusals")
    api.ok("GET", "/api/agents/bob/connectors")
    api.ok("DELETE", f"/api/connectors/{one}")
    return Made(kept["install_id"], kept["secret"])


def use_stories(system: System, api: Api, made: Made) -> None:
    run = system.say(made, "hello", "m-1").json()["run_id"]
    system.settle()
    system.receiver(answer(500))
    system.say(made, "hello again", "m-2")
    system.settle()
    system.clock.forward(4)  # longer than an index lags
    out = run.replace("run_", "out_")
    api.ok("POST", "/api/instance/rewrap")
    for path in (
        "/api/agents/bob/runs",
        f"/api/runs/{run}",
        f"/api/explain/{run}",
        f"/api/explain?install_id={made.install_id}&conversation_key=room&message_id=m-9",
        "/api/agents/bob/conversations",
        f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}",
        f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}/messages",
        "/api/agents/bob/outbox",
        f"/api/outbox/{out}",
        f"/api/outbox/{out}/attempts",
    ):
        assert api("GET", path).status in (200, 404), path
    api.ok("POST", f"/api/outbox/{out}/replay")
    (waiting,) = api.ok("GET", "/api/agents/bob/outbox?status=pending")["items"]
    api.ok("POST", f"/api/outbox/{waiting['outbound_id']}/discard")
    queued = system.say(made, "never mind", "m-3").json()["run_id"]
    api.ok("POST", f"/api/runs/{queued}/cancel")
    room = keys.conversation_id(made.install_id, "room-9")
    api.ok("DELETE", f"/api/conversations/{room}")


def use_a_model(system: System, api: Api) -> None:
    """An agent whose model is asked with the instance's key."""
    api.ok("PUT", "/api/instance/model-keys/openai", {"value": "canary-model-key"})
    said = {"choices": [{"message": {"role": "assistant", "content": "hi"}}]}
    system.egress.script(
        "https://api.openai.com/v1/chat/completions", answer(200, json.dumps(said).encode())
    )
    model = {"kind": "openai", "name": "some-model"}
    api.ok("POST", "/api/agents", {"slug": "grace", "model": model})
    body = {"kind": "generic", "enable": True}
    made = api.ok("POST", "/api/agents/grace/connectors", body)
    run = system.say(Made(made["install_id"], made["secret"]), "hello", "m-1").json()["run_id"]
    system.settle()
    assert api.ok("GET", f"/api/runs/{run}")["status"] == "completed"
    api.ok("GET", "/api/agents/grace/tools")
    api.ok("PUT", "/api/agents/grace/tools/note", {"enabled": False, "version": 1})
    probe = {"arguments": {"query": "hello"}, "install_id": made["install_id"]}
    api.ok("POST", "/api/agents/grace/tools/conversation_search/probe", probe)


def use_web_access(api: Api) -> None:
    """Settings of the instance and of an agent, and a probe with the key that they keep."""
    body = {
        "mode": "custom",
        "provider": "brave",
        "api_key": "canary-provider-key",
        "limits": {"requests_per_minute": 60, "requests_per_run": 20},
        "version": 0,
    }
    for path in ("/api/web-access", "/api/agents/grace/web-access"):
        api.ok("PUT", f"{path}/search", body)
        api.ok("GET", path)
        api.ok("GET", f"{path}/search")
    api.system.egress.otherwise = usual
    probed = api.ok(
        "POST", "/api/agents/grace/tools/web_search/probe", {"arguments": {"query": "x"}}
    )
    assert probed["observation_kind"] == "result"


def use_chores(system: System, api: Api) -> None:
    """An enabling whose worker dies at its ping, gone on with; it fails, and a notice says so."""
    slow = f"{URL}/slow"
    body = {"kind": "generic", "delivery_url": slow}
    one = api.ok("POST", "/api/agents/bob/connectors", body)["install_id"]
    system.egress.script(slow, dies, answer(500))
    with pytest.raises(Killed):
        api("POST", f"/api/connectors/{one}/enable")
    for _ in range(2):
        system.clock.forward(120)
        system.stack.tick()
        system.settle()
    assert api.ok("GET", f"/api/connectors/{one}")["state"] == "error"
    assert api("GET", f"/api/jobs/{system.ids.mint('job')}").status == 404


def dies(_: object) -> Reply:
    raise Killed


def consult_the_doctor(api: Api) -> None:
    cursor: str | None = ""
    while cursor is not None:
        page = api.ok("GET", f"/api/instance/doctor{cursor and '?cursor='}{cursor}")
        cursor = page["next_cursor"]


def _of(calls: list[Call], name: str) -> Iterator[tuple[str, str]]:
    return ((call.service, call.operation) for call in calls if call.caller == name)


@pytest.mark.parametrize("function", topology.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_calls_nothing_that_its_role_refuses(
    done: dict[str, set[tuple[str, str]]], function: topology.Function
) -> None:
    called = done.get(function.name, set())
    table = {operation for service, operation in called if service == "dynamodb"}
    assert not table - READS - WRITES
    assert Allow.READ in function.table or not table & READS
    assert Allow.WRITE in function.table or not table & WRITES
    opened = {operation for service, operation in called if service == "kms"}
    assert opened <= {SECRETS[allowed] for allowed in function.secrets}
    assert function.rings or ("sqs", "SendMessage") not in called
    assert function.tells or ("events", "PutEvents") not in called


@pytest.mark.parametrize("function", topology.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_that_may_write_or_open_secrets_does(
    done: dict[str, set[tuple[str, str]]], function: topology.Function
) -> None:
    called = done[function.name]
    writes = {operation for service, operation in called if service == "dynamodb"} & WRITES
    assert bool(writes) is (Allow.WRITE in function.table)
    opened = {operation for service, operation in called if service == "kms"}
    assert bool(opened) is bool(function.secrets)
    assert (("events", "PutEvents") in called) is function.tells


def test_a_function_that_changes_nothing_may_write_nothing() -> None:
    for function in topology.FUNCTIONS:
        if function.routes and all(route.method == "GET" for route in function.routes):
            assert not function.table & {Allow.WRITE, Allow.APPEND_AUDIT}
            # The doctor opens secrets to see whether they open, and shows none.
            assert function.secrets <= ({Secrets.OPEN} if function.name == DOCTOR else set())
            assert not function.rings
