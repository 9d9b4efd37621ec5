"""The operator API's contract: order of refusals, error form, scope, versions, minting, audit."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from infra import topology
from infra.local.aws import Faults, Kind, LocalAws
from mesh.control.jobs import Jobs
from mesh.operator.api import RESOURCES
from mesh.operator.openapi import routes
from mesh.operator.route import Needs, Route
from mesh.records.job import JobKind
from mesh.storage import keys
from tests.fakes.control import CAUSE
from tests.fakes.egress import answer
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import URL, Made, System

ROUTES = routes()
WITH_TOKEN = [route for route in ROUTES if route.needs is not Needs.NOTHING]
NO_EFFECT = {"planConnector", "simulateMessage"}
"""What is posted and changes nothing."""
NOT_THERE = {"slug": "nobody", "id": "ins_" + "0" * 26, "name": "nothing", "kind": "nothing"}
NOT_THERE |= {"place": "everywhere", "capability": "nothing"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")


def each(found: list[Route[Any, Any]]) -> Any:
    return pytest.mark.parametrize("route", found, ids=lambda route: route.operation)


def path_of(route: Route[Any, Any], **names: str) -> str:
    return route.path.format(**{**NOT_THERE, **names})


class Instance:
    """An instance with two agents, an install, and an operator and a viewer of the first."""

    def __init__(self) -> None:
        self.system = System()
        self.admin = admin(self.system)
        self.admin.ok("POST", "/api/agents", {"slug": "bob"})
        self.operator = minted(self.admin, "operator", ["bob"])
        self.viewer = minted(self.admin, "viewer", ["bob"])
        self.all_viewer = minted(self.admin, "viewer")

    def install(self, agent: str = "bob", **more: Any) -> Made:
        body = {"kind": "generic", "name": "Support", "delivery_url": URL, "enable": True} | more
        made = self.admin.ok("POST", f"/api/agents/{agent}/connectors", body)
        return Made(made["install_id"], made["secret"])

    def answered(self, made: Made, message_id: str = "m-1") -> str:
        """A message that was answered; its run's id."""
        run_id: str = self.system.say(made, "hello", message_id).json()["run_id"]
        self.system.settle()
        self.system.clock.forward(4)  # longer than an index lags
        return run_id

    def get(self, made: Made) -> Any:
        return self.admin.ok("GET", f"/api/connectors/{made.install_id}")


ENDS_TOKENS = {"finishRestore"}
"""What a test that shares an instance with others calls on one of its own."""


@pytest.fixture(scope="module")
def shared() -> Instance:
    """For tests that change nothing that another reads."""
    return Instance()


# ---- the routes


def test_the_functions_answer_exactly_the_routes_that_the_gateway_knows() -> None:
    known = {
        (function.name, f"{route.method} {route.path}")
        for function in topology.FUNCTIONS
        for route in function.routes
        if route.api is topology.Api.OPERATOR
    }
    answered = {
        (f"operator_{resource}", route.key)
        for resource in RESOURCES
        for route in import_module(f"mesh.operator.{resource}").ROUTES
    }
    assert answered == known


def test_operations_have_names_of_their_own() -> None:
    assert len({route.operation for route in ROUTES}) == len(ROUTES)


# ---- the order of refusals


@each(WITH_TOKEN)
def test_without_a_valid_token_every_route_gives_the_same_401(
    shared: Instance, route: Route[Any, Any]
) -> None:
    revoked = minted(shared.admin, "viewer")
    (row,) = [
        each
        for each in shared.admin.ok("GET", "/api/operators?limit=200")["items"]
        if each["id"] == revoked.ok("GET", "/api/whoami")["id"]
    ]
    shared.admin.ok("DELETE", f"/api/operators/{row['id']}")
    bodies = set()
    for token in (None, "", "nonsense", f"mop_{'0' * 12}_{'A' * 43}", revoked.token):
        api = Api(shared.system, token)
        response = api(route.method, path_of(route), raw=b"{not json", content_type="text/plain")
        assert response.status == 401
        bodies.add(re.sub(r"req_\w+", "", response.body.decode()))
    assert len(bodies) == 1


@each([route for route in WITH_TOKEN if route.needs is not Needs.VIEWER])
def test_the_role_is_refused_before_anything_is_read(
    shared: Instance, route: Route[Any, Any]
) -> None:
    api = shared.viewer if route.needs is Needs.OPERATOR else shared.operator
    with shared.system.aws.recording() as calls:
        response = api(route.method, path_of(route), raw=b"{not json", content_type="text/plain")
    assert (response.status, error_of(response)) == (403, "forbidden")
    assert [call.operation for call in calls] == ["BatchGetItem"], "the authorizer's one look"


@each([route for route in WITH_TOKEN if "{" in route.path])
def test_what_is_not_there_is_refused_before_the_body_is_looked_at(
    shared: Instance, route: Route[Any, Any]
) -> None:
    response = shared.admin(
        route.method, path_of(route) + "?what=1", raw=b"{not json", content_type="text/plain"
    )
    assert (response.status, error_of(response)) == (404, "not_found")


def test_what_is_not_yours_answers_exactly_as_what_is_not_there() -> None:
    instance = Instance()
    made = instance.install("ada")
    run_id = instance.answered(made)
    theirs = {"slug": "ada"}
    jobs = Jobs(instance.system.table, instance.system.clock, instance.system.ids)
    install = instance.system.installs.by_id(made.install_id)
    assert install is not None
    job = jobs.new(JobKind.REPLAY_ENTRIES, made.install_id, CAUSE, agent_id=install.agent_id)
    instance.system.table.write(jobs.order(job))
    ids = {
        "/api/jobs": job.job_id,
        "/api/connectors": made.install_id,
        "/api/outbox": run_id.replace("run_", "out_"),
        "/api/runs": run_id,
        "/api/conversations": keys.conversation_id(made.install_id, "room-9"),
        "/api/explain": run_id,
        "/api/agents/{slug}/actors": keys.actor_id(made.install_id, "u-42"),
    }
    for route in WITH_TOKEN:
        if "{" not in route.path or route.needs is Needs.ADMIN:
            continue
        there = next((i for p, i in ids.items() if route.path.startswith(p)), "")
        prefix = there[: there.find("_") + 1]
        api = instance.operator
        body = None if route.method in ("GET", "DELETE") else {"what": 1}
        yours = api(route.method, path_of(route, **theirs, id=there), body)
        none = api(route.method, path_of(route, id=f"{prefix}{'0' * 26}"), body)
        assert yours.status == 404, route.operation
        assert re.sub(r"req_\w+", "", yours.body.decode()) == re.sub(
            r"req_\w+", "", none.body.decode()
        )
    query = f"install_id={made.install_id}&conversation_key=room-9&message_id=m-1"
    assert instance.admin("GET", f"/api/explain?{query}").status == 200
    assert instance.operator("GET", f"/api/explain?{query}").status == 404


@each([route for route in WITH_TOKEN if route.method in ("POST", "PUT") and "{" not in route.path])
def test_a_body_is_refused_by_type_then_by_form_then_by_shape(
    shared: Instance, route: Route[Any, Any]
) -> None:
    for raw, content_type, status, code in (
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", None, 415, "unsupported_media_type"),
        (b"{}", "application/json; charset=latin-1", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "malformed_json"),
        (b'{"a":1,"a":1}', "application/json", 400, "malformed_json"),
        (b'{"a":NaN}', "application/json", 400, "malformed_json"),
        (b"\xef\xbb\xbf{}", "application/json", 400, "malformed_json"),
        (b'{"a":"\xff"}', "application/json; charset=utf-8", 400, "malformed_json"),
        (b'{"a":"\\ud800"}', "application/json", 400, "malformed_json"),
        (b"[]", "application/json", 422, "invalid_request"),
        (b'{"surely_unknown":1}', "application/json", 422, "invalid_request"),
        (b'"' + b"a" * (300 * 1024) + b'"', "application/json", 413, "body_too_large"),
    ):
        response = shared.admin(route.method, path_of(route), raw=raw, content_type=content_type)
        assert (response.status, error_of(response)) == (status, code), raw[:20]


@each([route for route in WITH_TOKEN if route.needs is Needs.VIEWER and "{" not in route.path])
def test_an_unknown_query_parameter_is_refused_by_name(
    shared: Instance, route: Route[Any, Any]
) -> None:
    response = shared.admin(route.method, path_of(route) + "?limt=5")
    assert response.status == 422
    assert "limt" in [field["path"] for field in response.json()["error"]["fields"]]


@each([route for route in WITH_TOKEN if "{" in route.path])
def test_a_name_that_no_key_could_hold_is_not_there(
    shared: Instance, route: Route[Any, Any]
) -> None:
    for name in ("x" * 3000, "a%23b", "%00", "..", "opr_" + "0" * 2000, "%F0%9F%A6%8A"):
        response = shared.admin(route.method, path_of(route, **dict.fromkeys(NOT_THERE, name)))
        assert response.status == 404


# ---- the form of every answer


@pytest.mark.behaviour("operator:no-store")
@each(ROUTES)
def test_every_answer_forbids_storing_and_names_its_request(
    shared: Instance, route: Route[Any, Any]
) -> None:
    asked = {"X-Request-Id": "mine"}
    of = Instance() if route.operation in ENDS_TOKENS else shared
    for api in (of.admin, of.viewer, Api(of.system, None)):
        response = api(route.method, path_of(route), headers=asked)
        assert response.header("cache-control") == "no-store"
        assert str(response.header("x-request-id")).startswith("req_")
        if response.status >= 400:
            error = response.json()["error"]
            assert set(error) >= {"code", "message", "request_id"}
            assert error["request_id"] == response.header("x-request-id")
            assert re.fullmatch(r"[a-z_]+", error["code"])


@pytest.mark.parametrize(
    ("token", "target", "status", "code"),
    [
        (None, "/api/agents", 401, "unauthorized"),
        ("viewer", "/api/audit", 403, "forbidden"),
        ("viewer", "/api/agents/nobody", 404, "not_found"),
        ("viewer", "/api/agents?limit=0", 422, "invalid_request"),
    ],
)
def test_every_refusal_is_logged_by_its_code_under_the_request_that_was_told(
    shared: Instance, token: str | None, target: str, status: int, code: str
) -> None:
    response = Api(shared.system, shared.viewer.token if token else None)("GET", target)
    (told,) = [
        fields
        for event, fields in shared.system.log.events
        if event == "operator.refused" and fields["request_id"] == response.header("X-Request-Id")
    ]
    assert (response.status, told["status"], told["code"]) == (status, status, code)


def test_health_needs_no_token_and_touches_nothing(shared: Instance) -> None:
    with shared.system.aws.recording() as calls:
        response = Api(shared.system, None)("GET", "/healthz")
    assert response.json()["status"] == "ok"
    assert calls == []


def test_whoami_tells_role_reach_and_expiry(shared: Instance) -> None:
    who = shared.operator.ok("GET", "/api/whoami")
    assert (who["role"], who["agents"]) == ("operator", ["bob"])
    assert TIME.match(who["expires_at"])
    assert shared.admin.ok("GET", "/api/whoami")["agents"] is None


# ---- roles and reach


def test_a_token_lists_the_agents_that_it_reaches(shared: Instance) -> None:
    def slugs(api: Api) -> list[str]:
        return [agent["slug"] for agent in api.ok("GET", "/api/agents")["items"]]

    assert slugs(shared.operator) == slugs(shared.viewer) == ["bob"]
    assert slugs(shared.admin) == slugs(shared.all_viewer) == ["ada", "bob"]


def test_only_an_admin_sets_allow_hosts_and_a_base_url() -> None:
    instance = Instance()
    api, path = instance.operator, "/api/agents/bob/connectors"
    body = {"kind": "generic", "allow_hosts": ["hooks.example.com"]}
    assert api("POST", path, body).status == 403
    made = instance.admin.ok("POST", path, body)["install_id"]
    put = {"name": "x", "version": 1}
    assert api("PUT", f"/api/connectors/{made}", put).status == 403, "it would empty the list"
    put["allow_hosts"] = ["hooks.example.com"]
    assert api("PUT", f"/api/connectors/{made}", put).status == 200
    model = {"kind": "openai", "base_url": "https://models.example.com/v1"}
    assert api("PUT", "/api/agents/bob", {"model": model, "version": 1}).status == 403
    instance.admin.ok("PUT", "/api/agents/bob", {"model": model, "version": 1})
    kept = {"name": "Bob", "model": model, "version": 2}
    assert api("PUT", "/api/agents/bob", kept).status == 200, "what stands may stay"
    other = {"model": {"kind": "openai", "base_url": "http://10.0.0.1/"}, "version": 3}
    assert instance.admin("PUT", "/api/agents/bob", other).status == 422


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": "x", "role": "operator"}, "agents"),
        ({"name": "x", "role": "operator", "agents": []}, "agents"),
        ({"name": "x", "role": "admin", "agents": ["bob"]}, "agents"),
        ({"name": "x", "role": "viewer", "agents": ["bob", "nobody"]}, "agents.1"),
        ({"name": " ", "role": "viewer"}, "name"),
        ({"name": "x", "role": "root"}, "role"),
        ({"name": "x", "role": "viewer", "expires_in_days": 0}, "expires_in_days"),
        ({"name": "x", "role": "viewer", "expires_in_days": "9"}, "expires_in_days"),
    ],
)
def test_a_reach_must_fit_its_role(shared: Instance, body: dict[str, Any], path: str) -> None:
    response = shared.admin("POST", "/api/operators", body)
    assert response.status == 422
    assert [field["path"] for field in response.json()["error"]["fields"]] == [path]


# ---- versions


@pytest.mark.behaviour("operator:stale-409")
def test_a_put_replaces_everything_and_names_the_version_that_it_read() -> None:
    instance = Instance()
    api = instance.admin
    body = {"name": "Bob", "instructions": "Be kind.", "limits": {"steps": 7}, "version": 1}
    changed = api.ok("PUT", "/api/agents/bob", body)
    assert (changed["version"], changed["limits"]["steps"]) == (2, 7)
    assert changed["limits"]["seconds"] == 300
    stale = api("PUT", "/api/agents/bob", body)
    assert (stale.status, error_of(stale)) == (409, "version_conflict")
    assert stale.json()["error"]["current_version"] == 2
    replaced = api.ok("PUT", "/api/agents/bob", {"version": 2})
    assert (replaced["instructions"], replaced["limits"]["steps"]) == ("", 50)
    for more in ({"status": "paused"}, {"slug": "x"}, {"created_at": "x"}):
        assert api("PUT", "/api/agents/bob", {"version": 3, **more}).status == 422


@pytest.mark.behaviour("enablement:per-agent")
def test_what_a_connector_shows_of_its_settings_can_be_put_back() -> None:
    instance = Instance()
    made = instance.install()
    shown = instance.get(made)
    settable = (
        "name",
        "delivery_url",
        "allow_hosts",
        "engagement",
        "caps",
        "failure_replies",
        "version",
    )
    again = instance.admin.ok(
        "PUT", f"/api/connectors/{made.install_id}", {k: shown[k] for k in settable}
    )
    assert again["version"] == 2
    assert again["delivery_url"] == shown["delivery_url"]
    instance.answered(made)
    assert len(instance.system.calls()) == 2, "the ping, and the reply to the URL that was kept"


# ---- minting


@each([route for route in ROUTES if route.mints and "{" not in route.path])
def test_minting_needs_an_idempotency_key(shared: Instance, route: Route[Any, Any]) -> None:
    body = {"name": "x", "role": "viewer"} if "operators" in route.path else {"slug": "carl"}
    for key in ("", "é", "k" * 129):
        response = shared.admin("POST", route.path, body, headers={"Idempotency-Key": key})
        assert response.status == 422


@pytest.mark.behaviour("secrets:shown-once", "enablement:mint")
def test_a_secret_is_shown_once_and_the_same_key_makes_nothing_again() -> None:
    instance = Instance()
    api, path = instance.admin, "/api/agents/bob/connectors"
    body = {"kind": "generic", "name": "Support"}
    first = api.ok("POST", path, body, key="k-1")
    assert first["secret"].startswith("whsec_")
    again = api("POST", path, body, key="k-1")
    assert again.status == 201
    assert again.json()["install_id"] == first["install_id"]
    assert (again.json()["secret"], again.json()["replayed"]) == (None, True)
    other = api("POST", path, {"kind": "generic", "name": "Other"}, key="k-1")
    assert (other.status, error_of(other)) == (409, "idempotency_conflict")
    theirs = instance.operator.ok("POST", path, body, key="k-1")
    assert theirs["install_id"] != first["install_id"], "a key is the token's own"
    rotate = f"/api/connectors/{first['install_id']}/rotate"
    rotated = api.ok("POST", rotate, {}, key="k-2")
    same = api.ok("POST", rotate, {}, key="k-2")
    assert (same["secret"], same["version"]) == (None, rotated["version"])
    assert same["previous_valid_until"] == rotated["previous_valid_until"]
    token = api.ok("POST", "/api/operators", {"name": "x", "role": "viewer"}, key="k-3")
    shown = api.ok("POST", "/api/operators", {"name": "x", "role": "viewer"}, key="k-3")
    assert (shown["id"], shown["token"], shown["replayed"]) == (token["id"], None, True)
    assert len(instance.admin.every("/api/agents/bob/connectors")) == 2


@pytest.mark.parametrize("seed", range(6))
def test_a_minting_that_is_retried_until_it_answers_was_done_once(seed: int) -> None:
    faults = Faults(seed, rates={Kind.LOST: 0.15, Kind.CONFLICT: 0.15, Kind.THROTTLE: 0.1})
    system = System(seed=seed, faults=faults)
    with system.aws.without_faults():
        api = admin(system)
    for number in range(4):
        for _ in range(20):
            response = api(
                "POST", "/api/agents/ada/connectors", {"kind": "generic"}, key=f"k-{number}"
            )
            if response.status == 201:
                break
            assert response.status == 503, response.body
            assert response.header("retry-after") == "1"
    with system.aws.without_faults():
        assert len(api.every("/api/agents/ada/connectors")) == 4
    created = [row for row in audited(system.aws).values() if row["action"] == "connector.create"]
    assert len(created) == 4


def test_an_existing_slug_is_a_conflict(shared: Instance) -> None:
    response = shared.admin("POST", "/api/agents", {"slug": "bob"})
    assert (response.status, error_of(response)) == (409, "already_exists")


# ---- enablement


@pytest.mark.behaviour("enablement:states")
def test_creating_leaves_a_connector_disabled_with_its_secret_shown() -> None:
    instance = Instance()
    made = instance.admin.ok(
        "POST", "/api/agents/bob/connectors", {"kind": "generic", "delivery_url": URL}
    )
    assert (made["state"], made["state_reason"]) == ("disabled", None)
    assert made["ingress_url"].endswith("/generic/events")
    assert instance.system.calls() == []
    path = f"/api/connectors/{made['install_id']}"
    assert instance.admin.ok("POST", f"{path}/enable")["state"] == "enabled"
    (ping,) = instance.system.calls()
    assert b'"type":"ping"' in ping.body
    assert instance.system.verifies(Made(made["install_id"], made["secret"]), ping)


def test_a_ping_that_is_not_answered_2xx_ends_in_error_and_can_be_skipped() -> None:
    instance = Instance()
    instance.system.receiver(answer(401))
    body = {"kind": "generic", "delivery_url": URL, "enable": True}
    made = instance.admin.ok("POST", "/api/agents/bob/connectors", body)
    assert made["state"] == "error"
    assert made["secret"], "the secret is shown whatever the state"
    assert made["state_reason"].endswith(f"Then: mesh connector enable {made['install_id']}")
    assert "401" in made["state_reason"]
    path = f"/api/connectors/{made['install_id']}"
    assert instance.admin.ok("POST", f"{path}/ping")["delivered"] is False
    assert instance.admin.ok("POST", f"{path}/enable", {"skip_ping": True})["state"] == "enabled"


def test_without_a_url_enabling_has_nothing_to_do_first() -> None:
    instance = Instance()
    made = instance.install(delivery_url=None)
    assert instance.get(made)["state"] == "enabled"
    ping = instance.admin("POST", f"/api/connectors/{made.install_id}/ping")
    assert (ping.status, error_of(ping)) == (409, "state_conflict")


@pytest.mark.behaviour("enablement:gate-first", "enablement:drain")
def test_a_disabled_connector_refuses_and_an_enabled_one_sends_what_waited() -> None:
    instance = Instance()
    made = instance.install()
    path = f"/api/connectors/{made.install_id}"
    instance.system.receiver(answer(503))
    instance.answered(made)
    instance.admin.ok("POST", f"{path}/disable")
    assert instance.system.say(made, "x", "m-2").status == 403
    instance.system.receiver(answer(200))
    instance.system.run(60)
    sent = len(instance.system.calls())
    instance.system.run(120)
    assert len(instance.system.calls()) == sent, "nothing is sent while it is disabled"
    instance.admin.ok("POST", f"{path}/enable", {"skip_ping": True})
    instance.system.run(90)
    assert instance.system.delivered()[-1]["sequence"] == 1
    run_id = instance.admin.ok("GET", "/api/agents/bob/runs")["items"][0]["run_id"]
    entry = instance.admin.ok("GET", f"/api/outbox/{run_id.replace('run_', 'out_')}")
    assert entry["status"] == "delivered"


def test_a_paused_agent_refuses_on_every_connector_until_it_is_resumed() -> None:
    instance = Instance()
    made = instance.install()
    assert instance.operator.ok("POST", "/api/agents/bob/pause")["status"] == "paused"
    refused = instance.system.say(made, "x")
    assert (refused.status, error_of(refused)) == (503, "agent_paused")
    assert instance.operator.ok("POST", "/api/agents/bob/resume")["status"] == "active"
    assert instance.system.say(made, "x").status == 202


def test_a_deleted_connector_is_gone_for_operators_and_403_for_its_caller() -> None:
    instance = Instance()
    made = instance.install()
    path = f"/api/connectors/{made.install_id}"
    assert instance.operator("DELETE", path).status == 204
    assert instance.operator("DELETE", path).status == 404
    assert instance.admin.ok("GET", "/api/agents/bob/connectors")["items"] == []
    refused = instance.system.say(made, "x")
    assert (refused.status, error_of(refused)) == (403, "connector_disabled")


def test_after_a_rotation_without_overlap_the_old_secret_is_refused_at_once() -> None:
    instance = Instance()
    made = instance.install()
    rotate = f"/api/connectors/{made.install_id}/rotate"
    rotated = instance.admin.ok("POST", rotate, {"overlap_seconds": 0})
    assert instance.system.say(made, "x").status == 401
    assert instance.system.say(Made(made.install_id, rotated["secret"]), "x").status == 202
    instance.admin.ok("POST", rotate, {"overlap_seconds": 60})
    assert instance.admin("POST", rotate, {}).status == 409
    instance.admin.ok("POST", rotate, {"force": True})


# ---- a change of host


def test_a_change_of_host_with_replies_waiting_asks_what_becomes_of_them() -> None:
    instance = Instance()
    made = instance.install()
    path = f"/api/connectors/{made.install_id}"
    instance.system.receiver(answer(500))
    instance.answered(made)
    shown = instance.get(made)
    assert (shown["delivery"]["pending"], shown["delivery"]["dead"]) == (1, 0)
    assert TIME.match(shown["delivery"]["oldest_pending_at"])
    put: dict[str, Any] = {
        "name": "x",
        "delivery_url": "https://other.example/hook",
        "version": 1,
    }
    asked = instance.operator("PUT", path, put)
    assert (asked.status, error_of(asked)) == (409, "state_conflict")
    same_host = {**put, "delivery_url": URL + "?v=2"}
    assert instance.operator("PUT", path, same_host).status == 200
    changed = instance.operator.ok("PUT", path, {**put, "version": 2, "pending": "discard"})
    assert changed["delivery_url"].startswith("https://other.example/… ")
    instance.system.settle()
    entries = instance.operator.ok("GET", "/api/agents/bob/outbox")["items"]
    assert [entry["status"] for entry in entries] == ["discarded"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"delivery_url": "http://other.example/hook"}, 422, "invalid_request"),
        ({"delivery_url": "nonsense"}, 422, "invalid_request"),
        ({"delivery_url": "https://10.0.0.1/hook"}, 422, "invalid_request"),
        ({"version": 7}, 409, "version_conflict"),
    ],
)
def test_what_cannot_be_saved_discards_nothing_and_is_refused_first(
    change: dict[str, Any], status: int, code: str
) -> None:
    instance = Instance()
    made = instance.install()
    path = f"/api/connectors/{made.install_id}"
    instance.system.receiver(answer(500))
    instance.answered(made)
    put = {"name": "x", "delivery_url": "https://other.example/hook", "version": 1} | change
    for pending in ({}, {"pending": "discard"}, {"pending": "send"}):
        refused = instance.operator("PUT", path, put | pending)
        assert (refused.status, error_of(refused)) == (status, code)
    entries = instance.operator.ok("GET", "/api/agents/bob/outbox")["items"]
    assert [entry["status"] for entry in entries] == ["pending"]


def test_a_reply_that_was_held_for_longer_than_the_counts_look_back_is_asked_about_too() -> None:
    instance = Instance()
    made = instance.install()
    path = f"/api/connectors/{made.install_id}"
    instance.system.receiver(answer(500))
    instance.answered(made)
    instance.admin.ok("POST", f"{path}/disable")
    instance.system.clock.forward(40 * 24 * 3600)  # what is held on purpose does not age
    put = {"name": "x", "delivery_url": "https://other.example/hook", "version": 1}
    asked = instance.operator("PUT", path, put)
    assert (asked.status, error_of(asked)) == (409, "state_conflict")
    instance.operator.ok("PUT", path, put | {"pending": "discard"})
    instance.system.settle()
    shown = instance.operator.every("/api/agents/bob/outbox")
    assert [entry["status"] for entry in shown] == ["discarded"]


# ---- what happened


def test_lists_go_page_by_page_and_keep_their_place_while_more_comes() -> None:
    instance = Instance()
    made = instance.install()
    for number in range(5):
        instance.answered(made, f"m-{number}")
    page = instance.admin.ok("GET", "/api/agents/bob/runs?limit=2")
    instance.answered(made, "m-5")
    rest = instance.admin.ok("GET", f"/api/agents/bob/runs?limit=200&cursor={page['next_cursor']}")
    ids = [run["message_id"] for run in (*page["items"], *rest["items"])]
    assert ids == ["m-4", "m-3", "m-2", "m-1", "m-0"]
    assert rest["next_cursor"] is None
    assert len(instance.admin.every("/api/agents/bob/outbox")) == 6
    assert len(instance.admin.every("/api/agents/bob/outbox?status=delivered")) == 6
    assert instance.admin.every("/api/agents/bob/outbox?status=dead") == []
    assert instance.admin("GET", "/api/agents/bob/outbox?status=asleep").status == 422


def test_a_cursor_is_of_one_list_one_filter_and_one_token() -> None:
    instance = Instance()
    made = instance.install()
    for number in range(3):
        instance.answered(made, f"m-{number}")
    runs, outbox = "/api/agents/bob/runs?limit=1", "/api/agents/bob/outbox?limit=1"
    cursor = instance.admin.ok("GET", runs)["next_cursor"]
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", cursor)
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    for api, target in (
        (instance.viewer, f"{runs}&cursor={cursor}"),
        (instance.admin, f"{outbox}&cursor={cursor}"),
        (instance.admin, f"{runs}&status=failed&cursor={cursor}"),
        (instance.admin, f"{runs}&cursor={changed}"),
        (instance.admin, f"{runs}&cursor=AAAA"),
    ):
        response = api("GET", target)
        assert (response.status, error_of(response)) == (422, "invalid_request")
    assert instance.admin("GET", f"/api/agents/bob/runs?limit=3&cursor={cursor}").status == 200
    for limit in ("0", "201", "-1", "1.5", "x", ""):
        assert instance.admin("GET", f"/api/agents/bob/runs?limit={limit}").status == 422


def test_a_run_is_shown_with_budgets_and_steps(shared: Instance) -> None:
    instance = Instance()
    run_id = instance.answered(instance.install())
    run = instance.viewer.ok("GET", f"/api/runs/{run_id}")
    assert (run["status"], run["message_id"]) == ("completed", "m-1")
    (step,) = run["steps"]
    assert (step["kind"], step["status"], step["tool"]) == ("model", "completed", None)
    assert run["budgets"]["steps"] == {"used": 1, "limit": 50}


def test_the_story_of_a_message_is_the_same_by_each_of_its_ids() -> None:
    instance = Instance()
    made = instance.install()
    run_id = instance.answered(made)
    story = instance.viewer.ok("GET", f"/api/explain/{run_id}")
    for prefix in ("msg_", "out_", "req_"):
        assert instance.viewer.ok("GET", f"/api/explain/{prefix}{run_id[4:]}") == story
    query = f"install_id={made.install_id}&conversation_key=room-9&message_id=m-1"
    assert instance.viewer.ok("GET", f"/api/explain?{query}") == story
    kinds = [event["kind"] for event in story["events"]]
    assert kinds == [
        "received",
        "verdict",
        "run_queued",
        "run_started",
        "step",
        "run_ended",
        "reply_committed",
        "attempt",
        "reply_ended",
    ]
    ids = {value for event in story["events"] for value in event["ids"].values()}
    assert {f"{prefix}{run_id[4:]}" for prefix in ("msg_", "run_", "out_", "req_")} <= ids
    assert f"{run_id}#1" in ids
    assert story["next"] == "nothing: the reply is delivered"
    assert "hello" not in str(story), "a story holds no body"


def test_a_message_that_was_only_heard_is_explained_by_the_rule_that_decided() -> None:
    instance = Instance()
    made = instance.install()
    heard = instance.system.say(made, "hello all", topology="group").json()
    story = instance.viewer.ok("GET", f"/api/explain/{heard['id']}")
    verdict = story["events"][1]
    assert (verdict["rule"], verdict["reason"]) == ("engagement.policy", "not_addressed")
    assert story["subject"]["run_id"] is None
    assert "starts none" in story["next"]


def test_a_reply_that_waits_says_for_what_and_until_when() -> None:
    instance = Instance()
    made = instance.install()
    instance.system.receiver(answer(500))
    first = instance.answered(made, "m-1")
    second = instance.system.say(made, "again", "m-2").json()["run_id"]
    instance.system.stack.poll_once("turns")
    story = instance.viewer.ok("GET", f"/api/explain/{first}")
    assert re.match(r"attempt \d+ begins at 2026-", story["next"])
    behind = instance.viewer.ok("GET", f"/api/explain/{second}")
    assert behind["next"].startswith("it waits for reply 1, out_")
    instance.admin.ok("POST", f"/api/connectors/{made.install_id}/disable")
    held = instance.viewer.ok("GET", f"/api/explain/{first}")
    assert held["next"].endswith(f"Then: mesh connector enable {made.install_id}")


def test_a_refused_request_of_a_proven_caller_can_be_answered_for() -> None:
    instance = Instance()
    made = instance.install()
    refused = instance.system.post(made, {"message_id": "m", "tools": []})
    assert refused.status == 422
    (row,) = instance.viewer.ok("GET", f"/api/connectors/{made.install_id}/refusals")["items"]
    request_id = refused.header("x-request-id")
    assert (row["reason"], row["count"]) == ("invalid_payload", 1)
    assert row["last_request_ids"] == [request_id]
    story = instance.viewer.ok("GET", f"/api/explain/{request_id}")
    assert story["events"][0]["reason"] == "invalid_payload"
    unproven = instance.system.say(Made(made.install_id, "whsec_x"), "x")
    response = instance.viewer("GET", f"/api/explain/{unproven.header('x-request-id')}")
    assert response.status == 404


def test_a_refused_request_is_answered_for_by_three_reads_however_many_connectors_there_are() -> (
    None
):
    instance = Instance()
    made = instance.install()
    for _ in range(3):
        instance.install()
    theirs = instance.install("ada")
    ids = [
        str(instance.system.post(made, {"message_id": "m", "tools": []}).header("x-request-id"))
        for _ in range(3)
    ]
    foreign = instance.system.post(theirs, {"message_id": "m"}).header("x-request-id")
    for request_id in ids:  # those between the first and the last too
        with instance.system.aws.recording() as calls:
            story = instance.viewer.ok("GET", f"/api/explain/{request_id}")
        assert story["subject"] == {"id": request_id, "install_id": made.install_id}
        assert "3 such in that minute" in story["events"][0]["text"]
        asked = [call for call in calls if call.caller == "operator_runs"]
        assert len(asked) <= 4, [call.operation for call in asked]
    assert instance.admin("GET", f"/api/explain/{foreign}").status == 200
    assert instance.viewer("GET", f"/api/explain/{foreign}").status == 404
    (pointer,) = (
        row for row in instance.system.rows("REFUSED") if row["pk"] == f"STORY#{foreign[4:]}"
    )
    assert pointer["ttl"] > instance.system.clock.now_ms() // 1000


# ---- the outbox


def test_a_dead_or_delivered_entry_is_replayed_and_a_waiting_one_is_discarded() -> None:
    instance = Instance()
    made = instance.install()
    out = instance.answered(made, "m-1").replace("run_", "out_")
    replayed = instance.operator("POST", f"/api/outbox/{out}/replay")
    assert (replayed.status, replayed.json()["replay_requested"]) == (202, True)
    instance.system.settle()
    attempts = instance.viewer.ok("GET", f"/api/outbox/{out}/attempts")["items"]
    assert [(each["number"], each["replay"]) for each in attempts] == [(1, False), (2, True)]
    assert instance.operator("POST", f"/api/outbox/{out}/discard").status == 409
    instance.system.receiver(answer(500))
    waits = instance.answered(made, "m-2").replace("run_", "out_")
    assert instance.operator("POST", f"/api/outbox/{waits}/replay").status == 409
    discarded = instance.operator.ok("POST", f"/api/outbox/{waits}/discard")
    assert (discarded["status"], discarded["reason"]) == ("discarded", "operator")


# ---- audit and secrets


def audited(aws: LocalAws) -> dict[str, Any]:
    """Every audit row, by its sort key."""
    return {item["sk"]: item for item in aws.items() if item["pk"].startswith("AUDIT#")}


@pytest.mark.behaviour("audit:settings-write")
def test_every_route_that_changes_something_writes_its_audit_row_with_the_change() -> None:
    """Each act is watched write by write: nothing changes before or without its audit row."""
    instance = Instance()
    api, aws = instance.admin, instance.system.aws
    made = instance.install()
    out = instance.answered(made).replace("run_", "out_")
    instance.system.receiver(answer(500))
    waiting = instance.answered(made, "m-2").replace("run_", "out_")
    queued = instance.system.say(made, "never mind", "m-3").json()["run_id"]
    one = f"/api/connectors/{made.install_id}"
    kept = instance.system.make_note(made)
    other = api.ok("POST", "/api/operators", {"name": "x", "role": "viewer"})["id"]
    acts: dict[str, tuple[str, Any, str]] = {
        "createAgent": ("/api/agents", {"slug": "carl"}, "agent.create"),
        "putAgent": ("/api/agents/bob", {"version": 1}, "agent.update"),
        "pauseAgent": ("/api/agents/bob/pause", None, "agent.pause"),
        "resumeAgent": ("/api/agents/bob/resume", None, "agent.resume"),
        "putVaultValue": ("/api/agents/bob/vault/github", {"value": "canary-kept"}, "vault.put"),
        "deleteVaultValue": ("/api/agents/bob/vault/github", None, "vault.delete"),
        "putModelKey": ("/api/agents/bob/model-key", {"value": "canary-kept"}, "model_key.put"),
        "deleteModelKey": ("/api/agents/bob/model-key", None, "model_key.delete"),
        "probeTool": (
            "/api/agents/bob/tools/conversation_search/probe",
            {"arguments": {"query": "hello"}, "install_id": made.install_id},
            "tool.probe",
        ),
        "widenNote": (f"/api/agents/bob/notes/{kept}/widen", {"version": 1}, "note.widen"),
        "narrowNote": (
            "/api/agents/bob/notes/everywhere/hours/narrow",
            {"version": 2},
            "note.narrow",
        ),
        "deleteNote": (f"/api/agents/bob/notes/{kept}", None, "note.delete"),
        "putTool": ("/api/agents/bob/tools/note", {"enabled": False, "version": 1}, "tool.put"),
        "putWebAccess": (
            "/api/web-access/search",
            {
                "mode": "custom",
                "provider": "brave",
                "api_key": "canary-of-the-provider",
                "limits": {"requests_per_minute": 60, "requests_per_run": 20},
                "version": 0,
            },
            "web_access.put",
        ),
        "putAgentWebAccess": (
            "/api/agents/bob/web-access/search",
            {"mode": "disabled", "version": 0},
            "web_access.put",
        ),
        "createConnector": (
            "/api/agents/bob/connectors",
            {"kind": "generic"},
            "connector.create",
        ),
        "putConnector": (one, {"name": "y", "delivery_url": URL, "version": 1}, "connector.update"),
        "disableConnector": (f"{one}/disable", None, "connector.disable"),
        "enableConnector": (f"{one}/enable", {"skip_ping": True}, "connector.enable"),
        "rotateSecret": (f"{one}/rotate", {}, "connector.rotate"),
        "endOverlap": (f"{one}/end-overlap", None, "connector.end_overlap"),
        "pingConnector": (f"{one}/ping", None, "connector.ping"),
        "resumeDelivery": (f"{one}/resume-delivery", None, "connector.resume_delivery"),
        "replayEntry": (f"/api/outbox/{out}/replay", None, "outbox.replay"),
        "discardEntry": (f"/api/outbox/{waiting}/discard", None, "outbox.discard"),
        "replayEntries": (f"{one}/outbox/replay", None, "outbox.replay"),
        "discardEntries": (f"{one}/outbox/discard", None, "outbox.discard"),
        "cancelRun": (f"/api/runs/{queued}/cancel", None, "run.cancel"),
        "createOperator": ("/api/operators", {"name": "z", "role": "viewer"}, "operator.create"),
        "putOperator": (
            f"/api/operators/{other}",
            {"name": "y", "role": "viewer", "version": 1},
            "operator.update",
        ),
        "putInstanceSettings": ("/api/instance/settings", {"version": 0}, "instance.update"),
        "putInstanceModelKey": (
            "/api/instance/model-keys/openai",
            {"value": "canary-of-the-instance"},
            "model_key.put",
        ),
        "deleteInstanceModelKey": ("/api/instance/model-keys/openai", None, "model_key.delete"),
        "goOnWithRewrap": ("/api/instance/rewrap", None, "instance.rewrap"),
        "revokeOperator": (f"/api/operators/{other}", None, "operator.revoke"),
        "deleteActor": (
            f"/api/agents/bob/actors/{keys.actor_id(made.install_id, 'u-42')}",
            None,
            "actor.delete",
        ),
        "deleteConversation": (
            f"/api/conversations/{keys.conversation_id(made.install_id, 'room-9')}",
            None,
            "conversation.delete",
        ),
        "deleteConnector": (one, None, "connector.delete"),
        "deleteAgent": ("/api/agents/carl", None, "agent.delete"),
        "finishRestore": ("/api/instance/restore/finish", None, "instance.restore"),
    }
    changing = {
        r.operation: r for r in ROUTES if r.method != "GET" and r.operation not in NO_EFFECT
    }
    assert set(acts) == set(changing), "a route that changes something is missing here"
    for operation, (target, body, action) in acts.items():
        if operation == "deleteAgent":
            api.ok("POST", "/api/agents/carl/pause")
        before = audited(aws)
        first: list[set[str]] = []

        def note(_: Any, before: dict[str, Any] = before, first: list[set[str]] = first) -> None:
            now = audited(aws)
            first.append({now[sk]["action"] for sk in now.keys() - before.keys()})

        aws.on_write(note)
        response = api(changing[operation].method, target, body)
        aws.on_write(None)
        assert response.status < 300, (operation, response.body)
        after = audited(aws)
        new = [after[sk] for sk in after.keys() - before.keys()]
        assert action in first[0], f"{operation} changed something before its audit row"
        assert {item["request_id"] for item in new} == {response.header("x-request-id")}
        assert all(item["actor"].startswith("opr_") for item in new)


def test_the_audit_trail_is_filtered_and_paged() -> None:
    instance = Instance()
    api = instance.admin
    for name in ("a", "b", "c"):
        instance.system.clock.forward(1)
        version = api.ok("GET", "/api/agents/bob")["version"]
        api.ok("PUT", "/api/agents/bob", {"name": name, "version": version})
    rows = api.every("/api/audit?target=bob&action=agent.update")
    assert [row["version_after"] for row in rows] == [4, 3, 2]
    assert all(TIME.match(row["at"]) for row in rows)
    since = rows[0]["at"]
    assert len(api.every(f"/api/audit?action=agent.update&since={since}")) == 1
    assert len(api.every(f"/api/audit?action=agent.update&until={since}")) == 2
    assert api("GET", "/api/audit?since=yesterday").status == 422
    assert api("GET", "/api/audit?actr=x").status == 422


@pytest.mark.behaviour("secrets:never-returned", "secrets:shown-once")
def test_no_answer_log_or_row_holds_a_secret_after_it_was_shown() -> None:
    instance = Instance()
    system, api = instance.system, instance.admin
    path = "/hook/canary-in-the-path?token=canary-in-the-query"
    url = f"https://canary.example{path}"
    system.egress.script(url, answer(200))
    made = instance.install(delivery_url=url)
    rotated = api.ok("POST", f"/api/connectors/{made.install_id}/rotate", {})["secret"]
    token = api.ok("POST", "/api/operators", {"name": "x", "role": "viewer"})["token"]
    run_id = instance.answered(made)
    canaries = [
        made.secret,
        made.secret[6:],
        rotated,
        token,
        token[17:],
        str(api.token),
        "canary-in-the-path",
        "canary-in-the-query",
    ]
    names = {"slug": "bob", "id": made.install_id, "capability": "search"}
    seen = []
    for route in ROUTES:
        if route.method == "GET" and route.operation != "getOpenapi":
            found = {**names}
            if "outbox" in route.path or "runs" in route.path or "explain" in route.path:
                found["id"] = run_id if "outbox" not in route.path else f"out_{run_id[4:]}"
            seen.append(api("GET", route.path.format(**found)).body.decode())
    system.egress.script(url, answer(500))
    seen.append(api("POST", f"/api/connectors/{made.install_id}/ping").body.decode())
    bad = {"kind": "generic", "delivery_url": f"http://canary.example{path}"}
    seen.append(api("POST", "/api/agents/bob/connectors", bad).body.decode())
    seen.append(repr(system.log.events))
    seen.append(repr(list(system.aws.items())))
    for canary in canaries:
        assert not [text for text in seen if canary in text], canary[:12]
