"""Owns the control plane as tests use it without the operator API: over any composition of
ports."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.app import Ports
from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail, Cause
from mesh.control.idempotency import Minting
from mesh.control.installs import Installs
from mesh.kernel.ids import Ids
from mesh.records.agent import Agent, Limits, Model
from mesh.security.egress import Egress, EgressPolicy
from mesh.security.urls import Allowlist
from mesh.storage import keys
from mesh.storage.kms import KmsWrapper
from mesh.storage.table import Table
from mesh.storage.writes import update
from mesh.tools import packages

CAUSE = Cause("opr_test", "req_test")


@dataclass(frozen=True)
class ControlPlane:
    """Agents and installs, made without asking who asks."""

    table: Table
    ids: Ids
    audit: AuditTrail
    agents: Agents
    installs: Installs
    wrapper: KmsWrapper

    def make_agent(self, slug: str, limits: Limits = Limits(), model: Model = Model()) -> Agent:
        return self.agents.create(
            slug=slug,
            name=slug.title(),
            handle=slug,
            instructions="Be brief.",
            model=model,
            limits=limits,
            tools=packages.tool_names(),
            cause=CAUSE,
            minting=self.minting(),
        )

    def set_state(self, install_id: str, state: str) -> None:
        """Moves an install's enablement without its steps."""
        self.table.write(update(keys.settings(install_id), "SET #state = :state", state=state))

    def minting(self) -> Minting:
        return Minting("opr_test", "POST", "/x", self.ids.ulid(), "digest")


def control_plane(ports: Ports, egress: Egress) -> ControlPlane:
    """The control plane over the same table, keys and clock as the functions of `ports`."""
    audit = AuditTrail(ports.table, ports.clock, ports.ids, 400)
    return ControlPlane(
        table=ports.table,
        ids=ports.ids,
        audit=audit,
        wrapper=ports.key_wrapper,
        agents=Agents(ports.table, ports.clock, ports.ids, audit),
        installs=Installs(
            ports.table,
            ports.clock,
            ports.ids,
            ports.random,
            audit=audit,
            instance_keys=ports.instance_keys,
            judge=lambda url, hosts: egress.check(
                url, EgressPolicy(allow=(Allowlist.parse(hosts),))
            ),
        ),
    )
