"""Owns what differs between the environments, and nothing else: one typed object each.

Refuses anything that would make one environment a different system: functions, routes, grants and
queues come from `infra.topology` for all of them alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

UNKNOWN_ACCOUNT: Final = "000000000000"
"""Stands where no account was named, so that templates can be made and read without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """What a gateway's stage lets through; the rest gets its 429 without reaching a function."""

    per_second: int
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The settings of one environment."""

    name: str
    account: str
    region: str
    alarm_email: str | None = None
    """Who is told of alarms; further subscriptions can be made on the topic itself."""

    deletion_protection: bool = True
    """Whether the table and the stateful stack refuse to be deleted."""
    keep_data: bool = True
    """Whether the table, queues and keys stay when their stack goes."""
    logs_kept_days: int = 90
    messages_kept_days: int = 90
    attempts_kept_days: int = 30
    audit_kept_days: int = 400

    ingress_throttle: Throttle = field(
        default_factory=lambda: Throttle(per_second=2000, burst=4000)
    )
    operator_throttle: Throttle = field(default_factory=lambda: Throttle(per_second=100, burst=200))

    reserved_concurrency: Mapping[str, int] = field(default_factory=dict)
    """Executions set aside, by function; a name that is missing gets `reserved_default`."""
    reserved_default: int = 5
    worker_concurrency: Mapping[str, int] = field(default_factory=dict)
    """Messages worked on at once, by queue: SQS takes 2 to 1,000."""

    waiting_run_age_s_alarm: int = 900
    due_entry_age_s_alarm: int = 900
    backlog_alarm: int = 50_000
    """FIFO queues look for free groups among their first 120,000 messages only."""
    unproven_per_minute_alarm: int = 600
    """Answers 401 at ingress; a flood of unsigned requests, or a caller whose secret went stale."""

    event_bus: str = "default"
    """The bus of EventBridge, in the same account and region, that notices are put to."""

    secrets_keys: int = 1
    """How many master keys there have been. One more makes a new one, which wraps from then on;
    those before it stay and open what they have wrapped."""

    restored_table: str | None = None
    """The table that a restore made, in the place of the stack's own, which stays as it is."""
    standby: bool = False
    """Whether all but the operator API stands still: no message is taken in, and no work is done.
    For the time between a restore and its finish (`docs/backup.md`)."""

    break_glass_role: str = "mesh-break-glass"
    """The one role that may disable the keys or schedule their deletion."""

    @property
    def prefix(self) -> str:
        """What every physical name begins with."""
        return f"mesh-{self.name}"

    @property
    def has_account(self) -> bool:
        """Whether an account was named, so that it can be deployed."""
        return self.account != UNKNOWN_ACCOUNT


def environments(environ: Mapping[str, str] = os.environ) -> dict[str, Environment]:
    """All environments by name.

    `MESH_<ENV>_ACCOUNT`, `MESH_<ENV>_REGION` and `MESH_<ENV>_ALARM_EMAIL` say where each lives and
    who is told. Without an account the templates carry `UNKNOWN_ACCOUNT`, and `make deploy` says
    what to set.
    """

    def told(name: str, what: str) -> str | None:
        return environ.get(f"MESH_{name.upper()}_{what}")

    def account(name: str) -> str:
        return told(name, "ACCOUNT") or UNKNOWN_ACCOUNT

    def region(name: str) -> str:
        return told(name, "REGION") or "eu-west-1"

    return {
        "dev": Environment(
            name="dev",
            account=account("dev"),
            region=region("dev"),
            alarm_email=told("dev", "ALARM_EMAIL"),
            deletion_protection=False,
            keep_data=False,
            logs_kept_days=14,
            messages_kept_days=14,
            attempts_kept_days=14,
            ingress_throttle=Throttle(per_second=100, burst=200),
            operator_throttle=Throttle(per_second=20, burst=40),
            reserved_default=2,
            worker_concurrency={"turns": 20, "deliveries": 20, "delays": 5, "chores": 5},
        ),
        "staging": Environment(
            name="staging",
            account=account("staging"),
            region=region("staging"),
            alarm_email=told("staging", "ALARM_EMAIL"),
            logs_kept_days=30,
            messages_kept_days=30,
            ingress_throttle=Throttle(per_second=500, burst=1000),
            reserved_concurrency={"generic_ingress": 50, "operator_authorizer": 20},
            worker_concurrency={"turns": 100, "deliveries": 100, "delays": 10, "chores": 10},
        ),
        "prod": Environment(
            name="prod",
            account=account("prod"),
            region=region("prod"),
            alarm_email=told("prod", "ALARM_EMAIL"),
            logs_kept_days=180,
            reserved_concurrency={
                "generic_ingress": 200,
                "operator_authorizer": 40,
                "operator_connectors": 20,
            },
            reserved_default=10,
            worker_concurrency={"turns": 400, "deliveries": 200, "delays": 20, "chores": 20},
        ),
    }
