"""Owns the control plane as the operator API uses it: every part made once, when it is first asked
for.

Refuses to know a request: who asks, and whether he may, is decided before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mesh.connectors.generic.provision import GenericProvisioner
from mesh.control.agents import Agents
from mesh.control.audit import AuditTrail
from mesh.control.deletions import Deletions
from mesh.control.enablement import Enablement
from mesh.control.installs import Installs
from mesh.control.instance_model_keys import InstanceModelKeys
from mesh.control.instance_settings import InstanceControl, InstanceHosts
from mesh.control.jobs import Jobs
from mesh.control.notes import Notes
from mesh.control.operators import Operators
from mesh.control.restore import Restoring
from mesh.control.rewrap import Rewrapping
from mesh.control.rotation import Rotation
from mesh.control.tools import ToolBindings
from mesh.control.vault import Vault
from mesh.operator.deps import OperatorDeps
from mesh.outbox.commit import Commit
from mesh.security.egress.contract import Egress, judge_of
from mesh.security.urls import Refusal

if TYPE_CHECKING:
    from mesh.control.web_access import WebAccess
    from mesh.operator.prober import Prober
    from mesh.tools.gate import Gate


class ControlPlane:
    """The control plane's parts, each made when it is first asked for."""

    def __init__(self, deps: OperatorDeps) -> None:
        self.deps = deps

    @cached_property
    def egress(self) -> Egress:
        return self.deps.egress()

    @cached_property
    def audit(self) -> AuditTrail:
        deps = self.deps
        return AuditTrail(deps.table, deps.clock, deps.ids, deps.settings.audit_kept_days)

    @cached_property
    def agents(self) -> Agents:
        return Agents(self.deps.table, self.deps.clock, self.deps.ids, self.audit)

    @cached_property
    def installs(self) -> Installs:
        deps = self.deps
        return Installs(
            deps.table,
            deps.clock,
            deps.ids,
            deps.random,
            audit=self.audit,
            instance_keys=deps.instance_keys,
            judge=self.judge,
        )

    @cached_property
    def rotation(self) -> Rotation:
        deps = self.deps
        return Rotation(
            deps.table,
            deps.clock,
            deps.random,
            audit=self.audit,
            installs=self.installs,
            instance_keys=deps.instance_keys,
        )

    @cached_property
    def enablement(self) -> Enablement:
        deps = self.deps
        return Enablement(deps.table, deps.clock, deps.ids, self.audit, self.installs)

    @cached_property
    def gate(self) -> Gate:
        # The functions that call no tool carry no schemas.
        from mesh.tools.contract import Parts
        from mesh.tools.gate import gate_of

        deps = self.deps
        return gate_of(
            Parts(
                table=deps.table,
                clock=deps.clock,
                egress=lambda: self.egress,
                wrapper=deps.key_wrapper,
            )
        )

    @cached_property
    def tool_bindings(self) -> ToolBindings:
        return ToolBindings(self.deps.table, self.deps.clock, self.audit)

    @cached_property
    def notes(self) -> Notes:
        return Notes(self.deps.table, self.deps.clock, self.audit)

    @cached_property
    def prober(self) -> Prober:
        from mesh.operator.prober import Prober

        deps = self.deps
        return Prober(
            deps.table,
            deps.clock,
            deps.ids,
            audit=self.audit,
            gate=self.gate,
            watch=deps.watch(),
            kept_days=deps.settings.messages_kept_days,
        )

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(self.deps.table, self.deps.clock, self.deps.ids)

    @cached_property
    def restoring(self) -> Restoring:
        return Restoring(self.deps.table, self.deps.clock, self.audit, self.installs)

    @cached_property
    def deletions(self) -> Deletions:
        return Deletions(self.deps.clock, self.audit, self.jobs)

    @cached_property
    def commit(self) -> Commit:
        deps = self.deps
        return Commit(deps.table, deps.clock, deps.random, deps.settings.messages_kept_days)

    @cached_property
    def operators(self) -> Operators:
        deps = self.deps
        return Operators(deps.table, deps.clock, deps.ids, deps.random, self.audit)

    @cached_property
    def vault(self) -> Vault:
        deps = self.deps
        return Vault(
            deps.table, deps.clock, deps.random, audit=self.audit, wrapper=deps.key_wrapper
        )

    @cached_property
    def web_access(self) -> WebAccess:
        # The functions that know no provider carry no catalogue.
        from mesh.control.web_access import WebAccess
        from mesh.tools.web.catalogue import PROVIDERS, kept_for

        deps = self.deps
        return WebAccess(
            deps.table,
            deps.clock,
            deps.random,
            audit=self.audit,
            wrapper=deps.key_wrapper,
            providers=PROVIDERS,
            kept_for=kept_for,
        )

    @cached_property
    def rewrapping(self) -> Rewrapping:
        deps = self.deps
        return Rewrapping(
            deps.table, deps.clock, deps.ids, audit=self.audit, wrapper=deps.key_wrapper
        )

    @cached_property
    def generic(self) -> GenericProvisioner:
        deps = self.deps
        return GenericProvisioner(
            self.egress,
            deps.instance_keys,
            deps.clock,
            deps.ids,
            own_hosts=deps.settings.own_hosts,
            instance_hosts=self.instance_hosts,
        )

    def judge(self, url: str, allow_hosts: Sequence[str]) -> Refusal | None:
        """What the egress guard says of a URL, as it would before each request to it."""
        own_hosts = self.deps.settings.own_hosts
        return judge_of(self.egress, own_hosts, self.instance_hosts)(url, allow_hosts)

    @cached_property
    def instance_hosts(self) -> InstanceHosts:
        return InstanceHosts(self.deps.table, self.deps.clock)

    @cached_property
    def instance(self) -> InstanceControl:
        deps = self.deps
        return InstanceControl(
            deps.table,
            deps.random,
            audit=self.audit,
            instance_keys=deps.instance_keys,
            # The list that is being saved is the instance's own: no other counts beside it.
            judge=judge_of(self.egress, deps.settings.own_hosts, tuple),
        )

    @cached_property
    def instance_model_keys(self) -> InstanceModelKeys:
        deps = self.deps
        return InstanceModelKeys(
            deps.table, deps.clock, deps.random, audit=self.audit, wrapper=deps.key_wrapper
        )
