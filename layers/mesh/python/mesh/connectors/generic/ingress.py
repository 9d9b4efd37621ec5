"""Owns the generic connector's door: the order of checks, and what each of them answers.

Refuses to tell an unproven caller anything: every cause before verification gets one opaque 401,
after the same calls and the same work. Contract §1.2; seed 000, Authentication.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from mesh.connectors.admission import Admission, Admitted, Arrival
from mesh.connectors.gate import check_open, judge_message
from mesh.connectors.generic.payload import DIGEST_VERSION, digest, normalize
from mesh.connectors.http import HttpRequest, HttpResponse, from_event
from mesh.connectors.refusals import note_refusal
from mesh.control.instance_key import InstanceKeys
from mesh.control.secrets import open_secrets
from mesh.kernel.clock import Clock, Deadline
from mesh.kernel.errors import Conflict, Failed, Invalid, MeshError, Refused
from mesh.kernel.ids import Ids, Random, story_of
from mesh.kernel.limits import (
    INGRESS_DEADLINE_S,
    PREVIOUS_SECRET_NOTED_MS,
    RAW_BODY_BYTES_MAX,
)
from mesh.kernel.log import Log, error_name
from mesh.kernel.settings import Settings
from mesh.records.install import Install, Secret
from mesh.security.sealing import InstanceKey, SecretContext, seal
from mesh.security.signing import (
    SignedHeaders,
    parse_headers,
    skew_s,
    verify_inbound,
    within_window,
)
from mesh.storage import keys
from mesh.storage.queues import Bell
from mesh.storage.table import ConditionFailed, Table
from mesh.storage.writes import update

KIND: Final = "generic"
_DUMMY_INSTALL: Final = "ins_00000000000000000000000000"
_VALID_SECRETS_MAX: Final = 2

_OPAQUE_401: Final = HttpResponse(
    401,
    {"Content-Type": "application/json", "Cache-Control": "no-store"},
    '{"error":{"code":"unauthorized","message":"unauthorized"}}',
)


class _Unproven(Exception):
    """The caller did not prove who it is. `reason` is for the log alone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Caller(msgspec.Struct, frozen=True):
    """A proven caller: its install, and the secret that it used."""

    install: Install
    secret: Secret
    headers: SignedHeaders
    skew_s: int


class Ingress:
    """Answers `POST /generic/events`. Holds nothing between requests but clients and the instance
    key."""

    def __init__(
        self,
        *,
        table: Table,
        bell: Bell,
        instance_keys: InstanceKeys,
        clock: Clock,
        ids: Ids,
        random: Random,
        log: Log,
        settings: Settings,
        deadline: Deadline,
    ) -> None:
        """`table` and `bell` keep to the `deadline`, which starts with each request."""
        self._table = table
        self._bell = bell
        self._instance_keys = instance_keys
        self._clock = clock
        self._ids = ids
        self._random = random
        self._log = log
        self._settings = settings
        self._deadline = deadline
        self._admission = Admission(
            table,
            clock,
            random,
            digest,
            deadline=deadline,
        )
        self._dummies: tuple[InstanceKey, list[Secret]] | None = None

    def __call__(self, event: Mapping[str, object], _context: object = None) -> dict[str, object]:
        """Answers one trigger document of either gateway's shape."""
        request_id = self._ids.mint("req")
        try:
            response = self._answer(from_event(event), request_id)
        except MeshError as error:
            response = _refusal(error)
        headers = {**response.headers, "X-Request-Id": request_id}
        return HttpResponse(response.status, headers, response.body).to_event()

    def _answer(self, request: HttpRequest, request_id: str) -> HttpResponse:
        self._deadline.start(INGRESS_DEADLINE_S)
        now = self._clock.now_ms()
        if len(request.body) > RAW_BODY_BYTES_MAX:
            raise Invalid("body_too_large", f"a request holds at most {RAW_BODY_BYTES_MAX} bytes")
        try:
            caller = self._prove(request, now)
        except _Unproven as unproven:
            self._log("ingress.unproven", request_id=request_id, reason=unproven.reason)
            return _OPAQUE_401
        try:
            return self._take_in(request, request_id, caller, now)
        except (_Stale, Invalid, Refused, Conflict) as error:
            code = "timestamp_outside_window" if isinstance(error, _Stale) else error.code
            self._note(caller, code, request_id, now)
            if isinstance(error, _Stale):
                return _OPAQUE_401
            raise

    # ---- who calls

    def _prove(self, request: HttpRequest, now: int) -> _Caller:
        """Looks the install up, then verifies; a miss makes the same calls and the same work."""
        headers = parse_headers(
            request.headers.get("x-mesh-install"),
            request.headers.get("x-mesh-timestamp"),
            request.headers.get("x-mesh-signature"),
        )
        if headers is None:
            raise _Unproven("malformed_headers")
        key = self._instance_key()
        rows = self._table.query(keys.install(headers.install_id), prefix=keys.SE).items
        install: Install | None = None
        secrets: list[Secret] = []
        for row in rows:
            if row["sk"] == "SETTINGS":
                install = msgspec.convert(row, Install)
            else:
                secrets.append(msgspec.convert(row, Secret))
        if install is not None and install.kind != KIND:
            install, secrets = None, []
        secrets = [s for s in secrets if s.valid_until is None or s.valid_until > now]
        secrets = sorted(secrets, key=lambda s: s.version, reverse=True)[:_VALID_SECRETS_MAX]
        opened = [secret for _, secret in open_secrets(key, headers.install_id, secrets, now)]
        padding = self._padding(key)[len(opened) :]
        open_secrets(key, _DUMMY_INSTALL, padding, now)
        match = verify_inbound(headers, request.body, opened)
        if install is None:
            raise _Unproven("unknown_install")
        if match is None:
            raise _Unproven("bad_signature")
        return _Caller(install, secrets[match], headers, skew_s(headers.timestamp, now))

    def _instance_key(self) -> InstanceKey:
        """The instance key; a call that failed is made once more where there is time."""
        try:
            return self._instance_keys.current()
        except Failed:
            if not self._deadline.allows_a_call():
                raise
            return self._instance_keys.current()

    def _padding(self, key: InstanceKey) -> list[Secret]:
        """Two sealed secrets of nobody: what a miss opens, so that it costs what a hit costs."""
        if self._dummies is None or self._dummies[0] is not key:
            sealed = [
                Secret(
                    version=version,
                    blob=seal(
                        key,
                        SecretContext("agent_connector", _DUMMY_INSTALL, "signing", version),
                        self._random.bytes(25).hex().encode(),
                        self._random,
                    ),
                    created_at=0,
                )
                for version in range(1, _VALID_SECRETS_MAX + 1)
            ]
            self._dummies = (key, sealed)
        return self._dummies[1]

    # ---- what a proven caller gets

    def _take_in(
        self, request: HttpRequest, request_id: str, caller: _Caller, now: int
    ) -> HttpResponse:
        if not within_window(caller.headers.timestamp, now):
            raise _Stale
        install = caller.install
        check_open(install)
        message = normalize(request)
        arrival = Arrival(
            install=install,
            secret_version=caller.secret.version,
            message=message,
            judgement=judge_message(self._table, install, message),
            story=story_of(request_id),
            received_at=now,
            digest=digest(message, DIGEST_VERSION),
            digest_version=DIGEST_VERSION,
            kept_days=self._kept_days(install),
        )
        admitted = self._admission.admit(arrival)
        if admitted.engaged and not admitted.duplicate:
            rung = self._bell.turn(admitted.conversation_id, install.agent_id)
            if not rung:  # what is committed is accepted all the same: the sweep rings again
                self._log(
                    "ingress.doorbell_failed",
                    request_id=request_id,
                    conversation_id=admitted.conversation_id,
                )
        self._note_previous_secret(caller, now)
        self._log(
            "ingress.accepted",
            request_id=request_id,
            install_id=install.install_id,
            conversation_id=admitted.conversation_id,
            verdict=admitted.verdict.value,
            reason=admitted.reason,
            status="duplicate" if admitted.duplicate else "accepted",
        )
        return _accepted(admitted, message.message_id)

    def _kept_days(self, install: Install) -> int:
        """The agent's own number, else the instance's, else the environment's; no call."""
        return (
            install.retention_days
            or self._instance_keys.retention_days
            or self._settings.messages_kept_days
        )

    def _note(self, caller: _Caller, reason: str, request_id: str, now: int) -> None:
        """Keeps the refusal where the operator finds it; failing to does not change the answer."""
        try:
            note_refusal(
                self._table,
                install_id=caller.install.install_id,
                reason=reason,
                request_id=request_id,
                at_ms=now,
                skew_s=caller.skew_s,
                kept_days=self._settings.attempts_kept_days,
            )
        except Failed as failed:
            self._log("ingress.refusal_not_kept", request_id=request_id, code=failed.code)
        self._log(
            "ingress.refused",
            request_id=request_id,
            install_id=caller.install.install_id,
            reason=reason,
            skew_s=caller.skew_s,
        )

    def _note_previous_secret(self, caller: _Caller, now: int) -> None:
        """Remembers, once in a while, that the previous secret is still in use."""
        secret = caller.secret
        if (
            secret.valid_until is None
            or now - (secret.last_used_at or 0) < PREVIOUS_SECRET_NOTED_MS
        ):
            return
        try:
            self._table.write(
                update(
                    keys.secret(caller.install.install_id, secret.version),
                    "SET #last_used_at = :now",
                    "attribute_exists(#pk)",
                    now=now,
                )
            )
        except (ConditionFailed, Failed) as error:
            self._log("ingress.secret_use_not_kept", error=error_name(error))


class _Stale(Exception):
    """Signed right, but too long ago or ahead: answered like a bad signature, and kept as a
    refusal."""


def _accepted(admitted: Admitted, message_id: str) -> HttpResponse:
    body = {
        "status": "duplicate" if admitted.duplicate else "accepted",
        "id": f"msg_{admitted.story}",
        "message_id": message_id,
        "engagement": {"verdict": admitted.verdict.value, "reason": admitted.reason},
        "run_id": f"run_{admitted.story}" if admitted.engaged else None,
    }
    return _json(200 if admitted.duplicate else 202, body)


def _refusal(error: MeshError) -> HttpResponse:
    told: dict[str, object] = {"code": error.code, "message": error.message}
    headers = {}
    match error:
        case Invalid(fields=fields) if fields:
            told["fields"] = [{"path": f.path, "problem": f.problem} for f in fields]
        case Refused(retry_after_s=int(seconds)):
            headers["Retry-After"] = str(seconds)
        case Failed(outcome_unknown=True):
            told["outcome"] = "unknown"
    return _json(error.status, {"error": told}, headers)


def _json(status: int, body: object, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(
        status,
        {
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            **(headers or {}),
        },
        json.dumps(body, ensure_ascii=False, separators=(",", ":")),
    )
