"""Owns the routes of the instance's settings, and of its own keys of language models.

Refuses anyone but an admin, and to answer with what was put: a secret is shown once, a key never.
"""

from __future__ import annotations

from typing import Final

from mesh.control.agents import not_found
from mesh.control.instance_model_keys import KINDS
from mesh.control.instance_settings import Wanted
from mesh.control.vault import own_destination
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import FieldProblem, Invalid
from mesh.operator.route import Answer, Call, Needs, Route, nothing
from mesh.operator.shapes.base import Nothing
from mesh.operator.shapes.instance_settings import InstancePut, InstanceShown, ModelKeyAge
from mesh.operator.shapes.vault import ModelKeyShown, ModelKeyTaken
from mesh.records.agent import ModelKind
from mesh.records.instance import InstanceSettings


def _get(call: Call, _: None, __: Nothing) -> Answer:
    return Answer(_shown(call, call.plane.instance.read(), None))


def _put(call: Call, _: None, body: InstancePut) -> Answer:
    wanted = Wanted(
        allow_hosts=body.allow_hosts,
        webhook_url=body.operator_webhook_url,
        keep_webhook="operator_webhook_url" not in body.model_fields_set,
        retention_days=body.retention_days,
    )
    settings, secret = call.plane.instance.update(wanted, version=body.version, cause=call.cause)
    return Answer(_shown(call, settings, secret))


def _shown(call: Call, settings: InstanceSettings, secret: str | None) -> InstanceShown:
    kept = call.plane.instance_model_keys.kept()
    return InstanceShown(
        allow_hosts=list(settings.allow_hosts),
        operator_webhook_url=None if settings.webhook is None else settings.webhook.shown,
        retention_days=settings.retention_days,
        retention_days_default=call.plane.deps.settings.messages_kept_days,
        version=settings.version,
        webhook_secret=secret,
        model_keys=[
            ModelKeyAge(kind=kind, version=row.version, updated_at=rfc3339(row.updated_at))
            for kind, row in kept.items()
        ],
    )


def _put_model_key(call: Call, kind: ModelKind, body: ModelKeyTaken) -> Answer:
    _check_takes_key(kind)
    kept = call.plane.instance_model_keys.set(kind, body.value, call.cause)
    return Answer(
        ModelKeyShown(
            credential_present=True,
            kept_for=own_destination(kind),
            version=kept.version,
            updated_at=rfc3339(kept.updated_at),
        )
    )


def _delete_model_key(call: Call, kind: ModelKind, _: Nothing) -> Answer:
    _check_takes_key(kind)
    call.plane.instance_model_keys.delete(kind, call.cause)
    return Answer(None, 204)


def _kind(call: Call) -> ModelKind:
    """The kind of the path. Raises `not_found`."""
    try:
        return ModelKind(call.path["kind"])
    except ValueError:
        raise not_found() from None


def _check_takes_key(kind: ModelKind) -> None:
    """Raises Invalid for a kind that is asked without a key."""
    if kind not in KINDS:
        problem = FieldProblem("kind", f"{kind.value} is asked without a key")
        raise Invalid("invalid_request", "the kind takes no key", (problem,))


ROUTES: Final = (
    Route(
        method="GET",
        path="/api/instance/settings",
        operation="getInstanceSettings",
        summary="The instance's settings, and which model keys it has",
        needs=Needs.ADMIN,
        find=nothing,
        takes=Nothing,
        act=_get,
        answers=InstanceShown,
    ),
    Route(
        method="PUT",
        path="/api/instance/settings",
        operation="putInstanceSettings",
        summary="Replace the instance's settings",
        needs=Needs.ADMIN,
        find=nothing,
        takes=InstancePut,
        act=_put,
        answers=InstanceShown,
    ),
    Route(
        method="PUT",
        path="/api/instance/model-keys/{kind}",
        operation="putInstanceModelKey",
        summary="Keep the instance's key for a kind of model; it is never shown again",
        needs=Needs.ADMIN,
        find=_kind,
        takes=ModelKeyTaken,
        act=_put_model_key,
        answers=ModelKeyShown,
    ),
    Route(
        method="DELETE",
        path="/api/instance/model-keys/{kind}",
        operation="deleteInstanceModelKey",
        summary="Forget the instance's key for a kind of model",
        needs=Needs.ADMIN,
        find=_kind,
        takes=Nothing,
        act=_delete_model_key,
        answers=None,
        status=204,
    ),
)
