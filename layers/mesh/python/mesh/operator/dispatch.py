"""Owns the order of every request to the operator API, and the one form of every answer.

Refuses in one order, whatever the route: 401, then 403 by role without reading anything, then 404
by scope, then 413, 415, 400 and 422 of the body, then what the act itself refuses. A handler cannot
change it: a route says what it needs, finds and takes, and the act is called last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from mesh.control.agents import not_found
from mesh.control.audit import Cause
from mesh.control.idempotency import Minting, digest_of
from mesh.control.operators import Proven
from mesh.kernel.errors import Failed, FieldProblem, Invalid, MeshError, Refused
from mesh.kernel.limits import FIELD_PROBLEMS_MAX, IDEMPOTENCY_KEY_CHARS_MAX
from mesh.kernel.log import error_name
from mesh.operator import json_body
from mesh.operator.answers import answered, refusal
from mesh.operator.authorizer import proven_by
from mesh.operator.deps import OperatorDeps
from mesh.operator.plane import ControlPlane
from mesh.operator.route import Answer, Call, Needs, Route, Sent
from mesh.operator.shapes.base import Nothing
from mesh.records.operator import OperatorRole, Principal

_PRINTABLE: Final = re.compile(rf"[\x20-\x7e]{{1,{IDEMPOTENCY_KEY_CHARS_MAX}}}\Z")


_RANK: Final = {
    OperatorRole.VIEWER: Needs.VIEWER,
    OperatorRole.OPERATOR: Needs.OPERATOR,
    OperatorRole.ADMIN: Needs.ADMIN,
}


class Dispatcher:
    """The entry point of one operator function."""

    def __init__(self, routes: Sequence[Route[Any, Any]], deps: OperatorDeps) -> None:
        self._routes = {route.key: route for route in routes}
        self._deps = deps
        self._plane = ControlPlane(deps)

    def __call__(self, event: Mapping[str, Any], _: object) -> dict[str, Any]:
        """Answers one HTTP API event (payload 2.0)."""
        request_id = self._deps.ids.mint("req")
        route = self._routes.get(str(event.get("routeKey")))
        operation = "none" if route is None else route.operation
        try:
            answer = self._answer(route, event, request_id)
        except MeshError as error:
            self._deps.log(
                "operator.failed" if isinstance(error, Failed) else "operator.refused",
                action=operation,
                code=error.code,
                status=error.status,
                request_id=request_id,
            )
            return refusal(error, request_id)
        except Exception as error:  # noqa: BLE001 - the last line: an answer, and no text of the error
            self._deps.log(
                "operator.bug", action=operation, error=error_name(error), request_id=request_id
            )
            return refusal(
                Failed("internal", "something is wrong inside; the request id helps"), request_id
            )
        self._deps.log(
            "operator.answered", action=operation, status=answer.status, request_id=request_id
        )
        return answered(answer, request_id)

    def _answer(
        self, route: Route[Any, Any] | None, event: Mapping[str, Any], request_id: str
    ) -> Answer:
        if route is None:
            raise not_found()
        proven = proven_by(event)
        if route.needs is Needs.NOTHING:
            proven = proven or _ANYBODY
        if proven is None or (
            route.needs is not Needs.NOTHING
            and proven.principal.expires_at <= self._deps.clock.now_ms()
        ):
            raise Refused("unauthorized", "a valid operator token is needed")
        if route.needs is not Needs.NOTHING and _RANK[proven.principal.role] < route.needs:
            raise Refused(
                "forbidden", f"this needs the role {route.needs.name.lower()}; ask an admin"
            )
        headers = {k.lower(): str(v) for k, v in (event.get("headers") or {}).items()}
        query: Mapping[str, str] = event.get("queryStringParameters") or {}
        call = Call(
            plane=self._plane,
            proven=proven,
            path=event.get("pathParameters") or {},
            cause=Cause(proven.principal.operator_id, request_id),
            operation=route.operation,
        )
        subject = route.find(call)
        given, taken = self._take(route, event, headers, query)
        call = _with(
            call,
            minting=_minting(route, event, headers, proven.principal, given)
            if route.mints
            else None,
            binding=_binding(route, event, query, proven.principal),
            sent=_sent(event, headers) if route.unread else None,
        )
        return route.act(call, subject, taken)

    @staticmethod
    def _take(
        route: Route[Any, Any],
        event: Mapping[str, Any],
        headers: Mapping[str, str],
        query: Mapping[str, str],
    ) -> tuple[object, BaseModel]:
        """Reads what the route takes. Raises Invalid."""
        if route.method not in ("POST", "PUT"):
            return query, _validated(route.takes, query)
        raw = json_body.bytes_of(event)
        if route.unread:
            _validated(Nothing, query)
            return None, route.takes.model_construct()
        if raw or route.method == "PUT":
            json_body.check_media_type(headers)
            given = json_body.decode(raw)
        else:
            raw, given = b"{}", {}
        _validated(Nothing, query)
        return given, _validated(route.takes, raw)


_ANYBODY: Final = Proven(
    Principal(
        operator_id="anybody", name="anybody", role=OperatorRole.VIEWER, agents=(), expires_at=0
    ),
    b"",
)
"""Stands where a route needs nobody."""


def _sent(event: Mapping[str, Any], headers: Mapping[str, str]) -> Sent:
    """The body as it came; an empty one counts as `{}`, as everywhere."""
    raw = json_body.bytes_of(event)
    if not raw:
        return Sent("application/json", None, b"{}")
    return Sent(headers.get("content-type"), headers.get("content-encoding"), raw)


def _with(call: Call, *, minting: Minting | None, binding: str, sent: Sent | None) -> Call:
    return Call(
        plane=call.plane,
        proven=call.proven,
        path=call.path,
        cause=call.cause,
        operation=call.operation,
        minting=minting,
        binding=binding,
        sent=sent,
    )


def _validated(model: type[BaseModel], given: bytes | Mapping[str, str]) -> BaseModel:
    """`given` as `model`: a body strictly by JSON's types, a query from its text.

    Raises Invalid.
    """
    try:
        if isinstance(given, bytes):
            return model.model_validate_json(given, strict=True)
        return model.model_validate(given)
    except ValidationError as error:
        problems = tuple(
            FieldProblem(".".join(map(str, each["loc"]))[:200], _problem(each["type"], each["msg"]))
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise Invalid(
            "invalid_request", "the request is not valid", problems[:FIELD_PROBLEMS_MAX]
        ) from None


def _problem(kind: str, message: str) -> str:
    """A problem in this house's words where pydantic's are unclear. Never what was sent."""
    match kind:
        case "extra_forbidden":
            return "is not known"
        case "missing":
            return "is required"
        case "string_pattern_mismatch":
            return "has a form or a character that is not allowed"
        case "value_error":
            return message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _minting(
    route: Route[Any, Any],
    event: Mapping[str, Any],
    headers: Mapping[str, str],
    principal: Principal,
    given: object,
) -> Minting:
    key = headers.get("idempotency-key", "")
    if _PRINTABLE.match(key) is None:
        problem = FieldProblem("Idempotency-Key", "a header of 1 to 128 printable ASCII characters")
        raise Invalid("invalid_request", "this needs an Idempotency-Key", (problem,))
    return Minting(
        operator_id=principal.operator_id,
        method=route.method,
        path=_path(event),
        key=key,
        digest=digest_of(given),
    )


def _binding(
    route: Route[Any, Any],
    event: Mapping[str, Any],
    query: Mapping[str, str],
    principal: Principal,
) -> str:
    filters = {name: value for name, value in query.items() if name not in ("cursor", "limit")}
    return json.dumps([route.key, _path(event), principal.operator_id, sorted(filters.items())])


def _path(event: Mapping[str, Any]) -> str:
    http = (event.get("requestContext") or {}).get("http") or {}
    return str(event.get("rawPath") or http.get("path") or "")
