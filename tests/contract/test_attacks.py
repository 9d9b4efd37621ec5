"""Who attacks the operator API is refused clearly, changes nothing and learns nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mesh.kernel.clock import DAY_MS
from mesh.operator.openapi import routes
from mesh.operator.route import Needs, Route
from tests.fakes.operators import Api, admin, error_of, minted
from tests.fakes.system import URL, System

ROUTES = [route for route in routes() if route.needs is not Needs.NOTHING]
CHANGING = [route for route in ROUTES if route.method != "GET" and route.needs is not Needs.VIEWER]
AS_NOBODY = {"expired", "revoked", "another instance's", "changed by a letter"}


class Town:
    """An instance with two agents, each with an install and a conversation, and all who attack."""

    def __init__(self) -> None:
        self.system = System(lag=False)
        self.admin = admin(self.system)
        self.admin.ok("POST", "/api/agents", {"slug": "bob"})
        self.ids = {agent: self._install(agent) for agent in ("ada", "bob")}
        expired = minted(self.admin, "admin")
        self.system.clock.forward(91 * DAY_MS / 1000)  # longer than a token lives
        self.admin = admin(self.system)
        revoked = minted(self.admin, "admin")
        own = revoked.ok("GET", "/api/whoami")["id"]
        assert self.admin("DELETE", f"/api/operators/{own}").status == 204
        token = str(self.admin.token)
        changed = token[:-1] + ("A" if token[-1] != "A" else "B")
        self.attackers = {
            "expired": expired,
            "revoked": revoked,
            "another instance's": Api(self.system, admin(System(seed=2)).token),
            "changed by a letter": Api(self.system, changed),
            "a viewer": minted(self.admin, "viewer", ["ada"]),
            "bob's operator": minted(self.admin, "operator", ["bob"]),
        }

    def _install(self, agent: str) -> dict[str, str]:
        body = {"kind": "generic", "delivery_url": URL, "enable": True}
        made = self.admin.ok("POST", f"/api/agents/{agent}/connectors", body)
        return {"connectors": made["install_id"]}

    def path(self, route: Route[Any, Any], slug: str, ident: str) -> str:
        names = dict.fromkeys(re.findall(r"\{(\w+)\}", route.path), "openai")
        return route.path.format(**names | {"slug": slug, "id": ident})

    def theirs(self, route: Route[Any, Any]) -> str:
        """The path of what is Ada's."""
        return self.path(route, "ada", self.ids["ada"]["connectors"])

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Holds that no row of any kind is another afterwards."""
        before = self._rows()
        yield
        assert self._rows() == before

    def _rows(self) -> dict[tuple[str, str], Any]:
        return {(row["pk"], row["sk"]): row for row in self.system.aws.items()}


@pytest.fixture(scope="module")
def town() -> Town:
    return Town()


def each(found: list[Route[Any, Any]]) -> Any:
    return pytest.mark.parametrize("route", found, ids=lambda route: route.operation)


@each(CHANGING)
def test_whoever_may_not_changes_nothing_whatever_he_sends(
    town: Town, route: Route[Any, Any]
) -> None:
    for name, api in town.attackers.items():
        if name == "bob's operator" and "{" not in route.path and route.needs is Needs.OPERATOR:
            continue  # that is his right
        for raw in (b"{}", b"{", b'"' + b"a" * 2**20 + b'"'):
            with town.unchanged():
                response = api(route.method, town.theirs(route), raw=raw)
            expected = {401} if name in AS_NOBODY else {403, 404}
            assert response.status in expected, (name, response.status)


@each([route for route in ROUTES if "{slug}" in route.path or "/connectors/{id}" in route.path])
def test_anothers_costs_the_same_calls_as_what_is_not_there(
    town: Town, route: Route[Any, Any]
) -> None:
    api = town.attackers["bob's operator"]
    told = []
    for path in (town.theirs(route), town.path(route, "nobody", "ins_" + "0" * 26)):
        api("GET", "/api/whoami")  # both begin with functions that are warm
        with town.system.aws.recording() as calls:
            response = api(route.method, path, raw=b"{}" if route.method != "GET" else None)
        told.append(
            (
                response.status,
                re.sub(rb"req_\w+", b"", response.body),
                [(call.caller, call.service, call.operation) for call in calls],
            )
        )
    theirs, missing = told
    assert theirs[:2] == missing[:2]
    assert theirs[2] == missing[2]


def test_a_token_is_worth_nothing_from_the_request_after_its_revocation_on(town: Town) -> None:
    api = minted(town.admin, "operator", ["bob"])
    own = api.ok("GET", "/api/whoami")["id"]
    api.ok("GET", "/api/agents")  # every function is warm, and would know the token if it kept it
    town.admin("DELETE", f"/api/operators/{own}")
    response = api("GET", "/api/agents")
    assert (response.status, error_of(response)) == (401, "unauthorized")


def test_a_token_is_worth_nothing_from_the_moment_on_at_which_it_expires() -> None:
    town = Town()
    body = {"name": "short", "role": "viewer", "expires_in_days": 1}
    api = Api(town.system, town.admin.ok("POST", "/api/operators", body)["token"])
    town.system.clock.forward(DAY_MS / 1000 - 1)
    assert api("GET", "/api/agents").status == 200
    town.system.clock.forward(1)
    assert api("GET", "/api/agents").status == 401


@pytest.mark.parametrize(
    ("asked", "body", "refused"),
    [
        ("PUT /api/agents/bob", {"version": 9}, (409, "version_conflict")),
        ("POST /api/agents", {"slug": "ada"}, (409, "already_exists")),
        ("POST /api/agents", {"slug": "ada", "surely": 1}, (422, "invalid_request")),
        ("POST /api/agents", {"slug": "x" * 300_000}, (413, "body_too_large")),
        ("GET /api/agents?cursor=AAAA", None, (422, "invalid_request")),
    ],
)
def test_what_is_refused_by_its_content_changes_nothing(
    town: Town, asked: str, body: Any, refused: tuple[int, str]
) -> None:
    method, _, target = asked.partition(" ")
    with town.unchanged():
        response = town.admin(method, target, body)
    assert (response.status, error_of(response)) == refused


def test_another_operators_idempotency_key_makes_something_of_ones_own(town: Town) -> None:
    body = {"kind": "generic", "name": "Mine"}
    path = "/api/agents/bob/connectors"
    first = town.admin.ok("POST", path, body, key="the same key")
    second = town.attackers["bob's operator"].ok("POST", path, body, key="the same key")
    assert second["install_id"] != first["install_id"]
    with town.unchanged():
        other = town.admin("POST", path, body | {"name": "Other"}, key="the same key")
    assert (other.status, error_of(other)) == (409, "idempotency_conflict")
