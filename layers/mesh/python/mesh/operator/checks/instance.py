"""Owns the doctor's look at the instance: its sweep, its keys, its tokens, its webhook, its web
access, and what is long due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mesh.control.epochs import current_epoch
from mesh.control.instance_key import CONTEXT
from mesh.control.instance_settings import open_webhook
from mesh.kernel.errors import Failed
from mesh.kernel.limits import (
    DOCTOR_DUE_PER_SHARD,
    DOCTOR_LATE_MS,
    DOCTOR_OPERATORS_MAX,
    DOCTOR_SWEEP_LATE_MS,
    DOCTOR_TOKEN_ENDS_MS,
)
from mesh.operator.checks.finding import error, note, span, warning
from mesh.operator.checks.web import check_web
from mesh.operator.plane import ControlPlane
from mesh.operator.shapes.doctor import FindingShown
from mesh.records.operator import OperatorRole, Token
from mesh.records.rewrap import RewrapStatus
from mesh.storage import keys

_INSTANCE = "instance"


def check_instance(plane: ControlPlane) -> Iterator[FindingShown]:
    """What is wrong with the instance itself. Raises Failed when the table does not answer."""
    yield from _sweep(plane)
    yield from _key(plane)
    yield from _tokens(plane)
    yield from _webhook(plane)
    yield from check_web(plane.web_access.shelf(None), None)
    epoch = current_epoch(plane.deps.table)
    job = None if epoch.job_id is None else plane.jobs.find(epoch.job_id)
    if job is not None and job.ended_at is None:
        yield note(
            "restore_running",
            job.job_id,
            "a restore is being finished; connectors open when it has ended",
            f"mesh job wait {job.job_id}",
        )


def _sweep(plane: ControlPlane) -> Iterator[FindingShown]:
    row = plane.deps.table.get(keys.sweep_place("due"))
    at = None if row is None else row.get("at")
    if at is None:
        if _age_ms(plane) < DOCTOR_SWEEP_LATE_MS:
            return
        text = "no sweep was ever seen: nothing heals what crashes"
    elif plane.deps.clock.now_ms() - at > DOCTOR_SWEEP_LATE_MS:
        text = f"the last sweep ended {span(plane.deps.clock.now_ms() - at)} ago"
    else:
        return
    yield error("sweep_late", _INSTANCE, f"{text}; look at the schedule and errors of sweep_due")


def _age_ms(plane: ControlPlane) -> int:
    """How old the instance is: its first operator was made with it."""
    first, _ = plane.operators.page(1, None)
    now = plane.deps.clock.now_ms()
    return now - first[0].created_at if first else 0


def _key(plane: ControlPlane) -> Iterator[FindingShown]:
    """The instance key is opened for its own sake: what wraps it wraps everything else too."""
    deps = plane.deps
    row = deps.table.get(keys.instance_key())
    if row is None:  # no connector was ever made
        return
    try:
        wrapped_by = deps.key_wrapper.wrapped_by(row["wrapped"], CONTEXT)
    except Failed:
        yield error(
            "instance_key_unopenable",
            _INSTANCE,
            "the key that opens connectors' secrets does not open: is the KMS key enabled?",
        )
        return
    state = plane.rewrapping.state()
    if state is not None and state.status is RewrapStatus.FAILED:
        yield error(
            "values_unopenable",
            _INSTANCE,
            f"{state.unopenable} keys did not open when they were last wrapped anew",
            "mesh secret rewrap",
        )
    if wrapped_by != deps.settings.secrets_key:
        yield warning(
            "not_rewrapped",
            _INSTANCE,
            "there is a newer master key, and an older one still wraps the instance's keys",
            "mesh secret rewrap",
        )


def _tokens(plane: ControlPlane) -> Iterator[FindingShown]:
    now = plane.deps.clock.now_ms()
    tokens, more = plane.operators.page(DOCTOR_OPERATORS_MAX, None)
    live = [t for t in tokens if t.revoked_at is None and t.expires_at > now]
    if more is not None:
        yield note(
            "many_operators",
            _INSTANCE,
            f"only the oldest {DOCTOR_OPERATORS_MAX} operators were looked at",
            "mesh operator list --all",
        )
    for token in live:
        left_ms = token.expires_at - now
        if left_ms <= DOCTOR_TOKEN_ENDS_MS and not _followed(token, live):
            yield warning(
                "token_ends",
                token.operator_id,
                f"the token of {token.name} ({token.role}) ends in {span(left_ms)}, and no longer"
                " one has its name, role and agents",
                _mint(plane, token),
            )
    admins = [token for token in live if token.role is OperatorRole.ADMIN]
    if len(admins) == 1 and more is None:
        yield note(
            "one_admin",
            admins[0].operator_id,
            "there is one admin alone; whoever loses that token needs IAM to come back",
            "mesh operator create second-admin --role admin",
        )


def _webhook(plane: ControlPlane) -> Iterator[FindingShown]:
    """The webhook that tells operators of everything else, and cannot tell of itself."""
    deps = plane.deps
    try:
        webhook = open_webhook(deps.table, deps.instance_keys)
    except Failed:  # the key does not open, which is a finding of its own
        return
    health = None if webhook is None else deps.table.get(keys.webhook_health(webhook.url))
    if health is None:
        return
    # While notices wait, one of them tries it every few minutes.
    waits = deps.clock.now_ms() - health["not_before"] < DOCTOR_LATE_MS
    now = "notices wait for it" if waits else "what waited was given up; the next notice tries it"
    yield warning(
        "webhook_failing",
        _INSTANCE,
        f"the operators' webhook does not take what it is sent, and {now}; the log of chore_worker"
        " says how it answers",
        "mesh instance set --webhook-url-stdin",
    )


def _followed(token: Token, live: Sequence[Token]) -> bool:
    """Whether another token takes over when this one ends."""
    who = token.name, token.role, token.agents
    return any(
        other.expires_at > token.expires_at and (other.name, other.role, other.agents) == who
        for other in live
    )


def _mint(plane: ControlPlane, token: Token) -> str:
    reach = "".join(f" --agent {agent.slug}" for agent in plane.agents.many(token.agents or ()))
    name = token.name if token.name.isalnum() else f"'{token.name.replace(chr(39), '')}'"
    return f"mesh operator create {name} --role {token.role}{reach}"


def check_due(plane: ControlPlane, shards: Sequence[int]) -> Iterator[FindingShown]:
    """What some shards of the due index hold that should long have been done. Raises Failed."""
    deps = plane.deps
    until = deps.clock.now_ms() - DOCTOR_LATE_MS
    for shard in shards:
        page = deps.table.query_due(
            keys.due_shard(shard), until_ms=until, limit=DOCTOR_DUE_PER_SHARD
        )
        late = page.items
        for item in late:
            if item["sk"] == keys.JOB:
                job_id = f"job_{item['pk'].removeprefix('JOB#')}"
                yield error(
                    "job_stuck",
                    job_id,
                    f"a long change has not moved for over {span(DOCTOR_LATE_MS)}; look at the"
                    " errors of chore_worker",
                    f"mesh job show {job_id}",
                )
        others = sum(item["sk"] != keys.JOB for item in late)
        if others:
            yield error(
                "work_late",
                _INSTANCE,
                f"{others} or more things are due for over {span(DOCTOR_LATE_MS)} in shard {shard}"
                " of the sweep; look at the errors of sweep_due",
            )
