"""Owns the way from an agent's settings to the connector of its model, with its key and its policy.

Refuses to import a connector before an agent of its kind is worked for, and to open a key before
the very call that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from mesh.control.model_keys import open_model_key
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Failed
from mesh.models.contract import ModelConnector, ModelFailure, ModelFailureKind
from mesh.models.offline import OfflineModel
from mesh.records.agent import Agent, ModelKind
from mesh.security.egress.contract import Egress, policy_of
from mesh.security.sealing import KeyWrapper
from mesh.storage.table import Table

if TYPE_CHECKING:
    from mesh.storage.bedrock import MakesClient


class Models:
    """Makes the connector of an agent's model. One per function."""

    def __init__(
        self,
        *,
        table: Table,
        wrapper: KeyWrapper,
        egress: Callable[[], Egress],
        own_hosts: Sequence[str],
        instance_hosts: Callable[[], tuple[str, ...]],
        bedrock: MakesClient,
        clock: Clock,
    ) -> None:
        """`egress` makes the way out, and is asked when a model needs one; `bedrock` makes a client
        with that read time-out, in seconds."""
        self._table = table
        self._wrapper = wrapper
        self._make_egress = egress
        self._egress: Egress | None = None
        self._own_hosts = frozenset(own_hosts)
        self._instance_hosts = instance_hosts
        self._bedrock = bedrock
        self._clock = clock

    def __call__(self, agent: Agent) -> ModelConnector:
        """The connector of `agent`'s model as its settings name it. Raises Failed."""
        match agent.model.kind:
            case ModelKind.OFFLINE:
                return OfflineModel()
            case ModelKind.BEDROCK:
                from mesh.models.bedrock import BedrockModel
                from mesh.storage.bedrock import BedrockConverse

                return BedrockModel(BedrockConverse(self._bedrock), clock=self._clock)
            case ModelKind.ANTHROPIC:
                from mesh.models.anthropic import AnthropicModel as Connector
            case ModelKind.OPENAI:
                from mesh.models.openai import OpenAiModel as Connector  # type: ignore[assignment]
        if self._egress is None:
            self._egress = self._make_egress()
        return Connector(
            self._egress,
            policy_of(self._own_hosts, (), self._instance_hosts()),
            key=partial(self._key, agent),
            clock=self._clock,
            base_url=agent.model.base_url,
        )

    def _key(self, agent: Agent) -> str | None:
        """The key of the agent's model, for one use."""
        try:
            return open_model_key(self._table, self._wrapper, agent)
        except Failed as failed:
            if failed.code != "secret_unopenable":
                raise
            raise ModelFailure(
                ModelFailureKind.CREDENTIAL, "the key that is kept for this model does not open"
            ) from None
