"""Owns web connections as tests need them: written as the product's own rows, and providers that
answer in their wire shapes.

Refuses to stand for the operator API: what that writes is tried elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from mesh.control.connections import provider_key_context
from mesh.control.rows import item_of
from mesh.kernel.ids import Random
from mesh.records.connection import Capability, Connection, Mode
from mesh.records.value import SealedValue
from mesh.security.egress import Reply
from mesh.security.sealing import DataKey, KeyWrapper, seal
from mesh.storage import keys
from mesh.storage.table import Table
from mesh.storage.writes import delete, put
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from tests.fakes.egress import Call, answer

PAGE = "https://example.com/page"
KEY = "k-provider-canary-0123456789abcdef"
SERVES = {
    Capability.SEARCH: "brave",
    Capability.READ: "firecrawl",
}
"""The provider of each capability where a test does not care."""


@dataclass
class Connections:
    """Writes connections and keys of any owner, `instance` among them."""

    table: Table
    wrapper: KeyWrapper
    random: Random

    def connect(
        self,
        owner_id: str = "instance",
        capability: Capability = Capability.SEARCH,
        *,
        provider: str | None = None,
        per_minute: int = 60,
        per_run: int = 20,
        key: str | None = KEY,
        **config: str,
    ) -> Connection:
        """A connection of its own, at the version behind the one that stands."""
        name = provider or SERVES[capability]
        if key is not None:
            self.rotate(owner_id, name, key)
        return self._put(
            owner_id,
            Connection(
                capability=capability,
                mode=Mode.CUSTOM,
                provider=name,
                config=config,
                requests_per_minute=per_minute,
                requests_per_run=per_run,
                version=0,
                updated_at=0,
            ),
        )

    def disable(self, owner_id: str, capability: Capability = Capability.SEARCH) -> Connection:
        off = Connection(capability=capability, mode=Mode.DISABLED, version=0, updated_at=0)
        return self._put(owner_id, off)

    def inherit(
        self,
        agent_id: str,
        capability: Capability = Capability.SEARCH,
        per_run: int | None = None,
    ) -> Connection:
        row = Connection(
            capability=capability,
            mode=Mode.INHERIT,
            requests_per_run=per_run,
            version=0,
            updated_at=0,
        )
        return self._put(agent_id, row)

    def rotate(self, owner_id: str, provider: str, key: str) -> None:
        """The owner's key for the provider, at the version behind the one that stands."""
        row = keys.provider_key(owner_id, provider)
        stands = self.table.get(row)
        version = 1 if stands is None else stands["version"] + 1
        name = kept_for(PROVIDERS[provider])
        context = provider_key_context(owner_id, name, version)
        material, wrapped = self.wrapper.generate(context.encryption_context())
        blob = seal(DataKey(material), context, key.encode(), self.random)
        value = SealedValue(
            name=name, version=version, wrapped=wrapped, blob=blob, created_at=0, updated_at=0
        )
        self.table.write(put(row, item_of(value)))

    def lose_key(self, owner_id: str, provider: str) -> None:
        self.table.write(delete(keys.provider_key(owner_id, provider)))

    def _put(self, owner_id: str, connection: Connection) -> Connection:
        row = keys.connection(owner_id, connection.capability)
        stands = self.table.get(row)
        version = 1 if stands is None else stands["version"] + 1
        kept = msgspec.structs.replace(connection, version=version)
        self.table.write(put(row, item_of(kept)))
        return kept


def brave(*hits: tuple[str, str, str]) -> Reply:
    """What Brave answers with these results: URL, title, description."""
    results = [
        {"type": "search_result", "url": url, "title": title, "description": text}
        for url, title, text in hits
    ]
    return answer(200, json.dumps({"type": "search", "web": {"results": results}}).encode())


def firecrawl(markdown: str, title: str | None = "A page") -> Reply:
    """What Firecrawl answers with a page."""
    data: dict[str, Any] = {
        "markdown": markdown,
        "metadata": {"title": title, "statusCode": 200, "sourceURL": PAGE, "url": PAGE},
    }
    return answer(200, json.dumps({"success": True, "data": data}).encode())


def provider_of(call: Call) -> str:
    """Whose API a request goes to."""
    return next(
        provider.name
        for provider in PROVIDERS.values()
        if call.url.startswith(provider.origin + "/")
    )


def usual(call: Call) -> Reply:
    """What each provider answers when all is well."""
    if provider_of(call) == "brave":
        return brave((PAGE, "A page", "What it says"))
    return firecrawl("# A page\n\nWhat it says")
