"""Owns what an owner may set for the web: which settings go together, and what a provider's
configuration is.

Refuses what no provider can keep: a restriction to hosts, which none enforces, is refused in words
and not passed over. Knows no row: what depends on what stands is decided in the transaction
(`control/web_access.py`). Seed 001, "Operator API".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from mesh.kernel.errors import FieldProblem, Invalid
from mesh.records.connection import Capability, Mode, Provider

HOST_FIELDS: Final = frozenset(
    {"allow_hosts", "allowed_hosts", "allowed_domains", "domains", "hostnames"}
)
"""What operators call a restriction to hosts."""
_LIMITS: Final = ("requests_per_minute", "requests_per_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an owner sets for one capability, as a whole."""

    capability: Capability
    mode: Mode
    provider: str | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    requests_per_minute: int | None = None
    requests_per_run: int | None = None
    api_key: str | None = field(default=None, repr=False)
    """A fresh key of the provider; None keeps the one that the owner has for it."""
    clear_key: bool = False
    """Whether the owner's key for `provider` is forgotten."""


def check(wanted: Wanted, providers: Mapping[str, Provider], *, inherits: bool) -> None:
    """Raises Invalid, with each field that is wrong by itself. `inherits`: whether the owner may
    follow another, as agents follow the instance."""
    problems = tuple(_problems(wanted, providers, inherits))
    if problems:
        raise refused(*problems)


def refused(*problems: FieldProblem) -> Invalid:
    """The one answer for settings that are not valid."""
    return Invalid("invalid_request", "the web access is not valid", problems)


def config_of(wanted: Wanted) -> dict[str, str]:
    """The configuration of what was checked: texts alone."""
    return {name: value for name, value in wanted.config.items() if isinstance(value, str)}


def _problems(
    wanted: Wanted, providers: Mapping[str, Provider], inherits: bool
) -> Iterator[FieldProblem]:
    match wanted.mode:
        case Mode.CUSTOM:
            yield from _custom(wanted, providers)
        case Mode.INHERIT:
            yield from _inherit(wanted, inherits)
        case Mode.DISABLED:
            yield from _disabled(wanted, providers)
        case _:
            assert_never(wanted.mode)


def _custom(wanted: Wanted, providers: Mapping[str, Provider]) -> Iterator[FieldProblem]:
    if wanted.provider is None:
        yield FieldProblem("provider", f"is required: {_served(wanted, providers)}")
    yield from _provider(wanted, providers, may_be_empty=False)
    for name in _LIMITS:
        if getattr(wanted, name) is None:
            yield FieldProblem(f"limits.{name}", "is required")
    if wanted.clear_key:
        yield FieldProblem(
            "clear_key",
            "would leave the capability on without a credential: put the mode disabled with it",
        )


def _inherit(wanted: Wanted, inherits: bool) -> Iterator[FieldProblem]:
    if not inherits:
        yield FieldProblem("mode", "the instance inherits from nobody: put custom or disabled")
        return
    if wanted.provider is not None:
        yield FieldProblem("provider", "must be null: who inherits has the instance's")
    if wanted.config:
        yield FieldProblem("config", "must be empty: who inherits has the instance's")
    if wanted.api_key is not None:
        yield FieldProblem("api_key", "must be left out: the instance's key is used")
    if wanted.clear_key:
        yield FieldProblem(
            "clear_key",
            "to forget the agent's own key, first put the mode disabled with clear_key and the"
            " provider's name, then inherit",
        )
    if wanted.requests_per_minute is not None:
        yield FieldProblem(
            "limits.requests_per_minute", "is the instance's: only requests_per_run may be lower"
        )


def _disabled(wanted: Wanted, providers: Mapping[str, Provider]) -> Iterator[FieldProblem]:
    yield from _provider(wanted, providers, may_be_empty=True)
    for name in _LIMITS:
        if getattr(wanted, name) is not None:
            yield FieldProblem(f"limits.{name}", "must be null where the capability is disabled")
    if wanted.api_key is not None:
        yield FieldProblem("api_key", "must be left out where the capability is disabled")
    if wanted.clear_key and wanted.provider is None:
        yield FieldProblem("provider", "is required: it says whose key is forgotten")


def _provider(
    wanted: Wanted, providers: Mapping[str, Provider], *, may_be_empty: bool
) -> Iterator[FieldProblem]:
    """What is wrong with the provider and its configuration, which may be empty where it is not
    used."""
    provider = None if wanted.provider is None else providers.get(wanted.provider)
    if provider is None or wanted.capability not in provider.capabilities:
        if wanted.provider is not None:
            yield FieldProblem(
                "provider", f"serves no {wanted.capability}: {_served(wanted, providers)}"
            )
        elif wanted.config and may_be_empty:
            yield FieldProblem("config", "must be empty where no provider is named")
        return
    declared = {each.name: each for each in provider.config}
    for name in wanted.config:
        if name not in declared:
            yield FieldProblem(f"config.{name}", _undeclared(name, provider))
    if may_be_empty and not wanted.config:
        return
    for name, each in declared.items():
        value = wanted.config.get(name)
        if value is None:
            yield FieldProblem(f"config.{name}", f"is required: {each.hint}")
        elif not isinstance(value, str) or re.fullmatch(each.pattern, value) is None:
            yield FieldProblem(f"config.{name}", f"has another form: {each.hint}")


def _undeclared(name: str, provider: Provider) -> str:
    if name in HOST_FIELDS:
        return (
            f"{provider.title} cannot enforce a restriction to hosts, so Mesh takes none: where"
            " one is required, leave the capability disabled"
        )
    return "is not known"


def _served(wanted: Wanted, providers: Mapping[str, Provider]) -> str:
    names = sorted(
        name for name, each in providers.items() if wanted.capability in each.capabilities
    )
    return f"one of {', '.join(names)}"
