"""Owns the doctor's look at web access: whether what is on can be used by what its owner has.

Refuses to open a key: whether a provider takes it, a probe tells.
"""

from __future__ import annotations

from collections.abc import Iterator

from mesh.control.connections import Shelf
from mesh.operator.checks.finding import error
from mesh.operator.shapes.doctor import FindingShown
from mesh.records.connection import Connection, Mode
from mesh.tools.web.catalogue import PROVIDERS, kept_for


def check_web(shelf: Shelf, slug: str | None) -> Iterator[FindingShown]:
    """What is wrong with what the agent of that slug, or the instance (None), has set."""
    for connection in shelf.connections.values():
        if connection.mode is Mode.CUSTOM and connection.provider is not None:
            yield from _of(connection, connection.provider, shelf, slug)


def _of(
    connection: Connection, name: str, shelf: Shelf, slug: str | None
) -> Iterator[FindingShown]:
    subject, of_agent = slug or "instance", "" if slug is None else f" --agent {slug}"
    capability, provider = connection.capability, PROVIDERS.get(name)
    if provider is None:
        yield error(
            "web_provider_unknown",
            subject,
            f"{capability} goes by {name}, which this version does not have: it fails",
            f"mesh web disable {capability}{of_agent}",
        )
        return
    key = shelf.keys.get(name)
    again = f"mesh web set {capability}{of_agent} --provider {name} --key-stdin"
    if key is None:
        yield error(
            "web_key_missing",
            subject,
            f"{capability} goes by {provider.title}, and no key is kept for it: it is not offered",
            again,
        )
    elif key.name != kept_for(provider):
        yield error(
            "web_key_elsewhere",
            subject,
            f"the key for {provider.title} was kept for another address, and goes nowhere else",
            again,
        )
