"""Owns the nouns of web access: a provider as it is described, a configured connection, and the
grant that a call rests on.

Refuses secrets: a provider's key is a sealed value of its owner, and is never in a connection.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mesh.records.value import CredentialSource


class Capability(StrEnum):
    """What an agent can do by a hosted provider."""

    SEARCH = "search"
    READ = "read"


class Mode(StrEnum):
    """How an owner stands to a capability."""

    INHERIT = "inherit"
    """An agent follows the instance: so does one without a row."""
    CUSTOM = "custom"
    """It has a provider, a configuration and a key of its own."""
    DISABLED = "disabled"
    """It has none: a stored opt-out, whatever the instance does."""


class ConfigField(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that a provider needs beside its key. All of them are required."""

    name: str
    title: str
    pattern: str
    """What the whole value matches."""
    hint: str
    """Where an operator finds it, and what it looks like."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A hosted provider as the catalogue describes it: everything that is not code."""

    name: str
    title: str
    capabilities: tuple[Capability, ...]
    origin: str
    """The only place that its adapter connects to: `https://` and a host. Keys are sealed for
    it."""
    key_hint: str
    """What an operator needs: which key, with which permission."""
    config: tuple[ConfigField, ...] = ()
    query_characters_max: int | None = None
    query_words_max: int | None = None
    """What its search takes, where that is less than the tool takes; words are what white space
    parts."""
    redirects: str
    """Where redirects of the pages that it opens are enforced, in a sentence for operators."""
    subrequests: str
    """The same of what those pages load."""
    restricts_hosts: bool = False
    """Whether it can be told which hosts it may open, and enforces that. None of them can yet."""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner (the instance, or an agent) has set for one capability."""

    capability: Capability
    mode: Mode
    provider: str | None = None
    config: dict[str, str] = {}
    requests_per_minute: int | None = None
    requests_per_run: int | None = None
    """Of an agent that inherits: an allowance below the instance's."""
    version: int
    updated_at: int


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent may use one capability by, as it was read, and the versions it rests on.

    A call that was offered on a grant is carried out while the grant that is read anew is equal.
    """

    capability: Capability
    provider: str
    config: dict[str, str]
    source: CredentialSource
    """Whose key pays."""
    own_version: int
    """Of the agent's row; 0 where there is none."""
    instance_version: int
    """Of the instance's row; 0 where the agent's own stands."""
    key_version: int
    requests_per_minute: int
    requests_per_run: int

    @property
    def version(self) -> int:
        """Of the connection whose provider it is."""
        return self.own_version if self.source is CredentialSource.AGENT else self.instance_version

    @property
    def payer(self) -> str:
        """Whose credential pays, and at whom, in the form `instance/brave`."""
        return f"{self.source.value}/{self.provider}"


class Missing(StrEnum):
    """Why an agent has no grant for a capability."""

    OPTED_OUT = "web_access_disabled"
    """The agent's own row says so."""
    DISABLED = "web_access_disabled_for_instance"
    NOT_CONFIGURED = "web_access_not_configured"
    """The agent inherits, and the instance has set nothing."""
    NO_CREDENTIAL = "web_access_without_credential"
    """There is a provider, and no key of the owner whose it is."""
