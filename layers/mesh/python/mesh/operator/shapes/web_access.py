"""Owns the shapes of web access: what an owner sets for a capability, and how it stands.

Refuses to show a provider's key, and to take one that is blank or that no header could carry.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from mesh.kernel.limits import PROVIDER_KEY_CHARS_MAX, REQUESTS_MAX, WEB_CONFIG_FIELDS_MAX
from mesh.operator.shapes.base import Shown, Taken, Time, Version
from mesh.records.connection import Capability, Missing, Mode
from mesh.records.value import CredentialSource


def _key(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or only white space")
    if len(text) > PROVIDER_KEY_CHARS_MAX:
        raise ValueError(f"must have at most {PROVIDER_KEY_CHARS_MAX} characters")
    if not all("!" <= char <= "~" for char in text):
        raise ValueError("must be printable ASCII without spaces, as a header takes it")
    return text


ProviderKey = Annotated[str, AfterValidator(_key)]
ProviderName = Annotated[str, StringConstraints(max_length=64)]
Requests = Annotated[int, Field(ge=1, le=REQUESTS_MAX)]
Config = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")],
        # What a name stands for is the provider's to say, with the name that is wrong.
        Annotated[Any, WithJsonSchema({"type": "string"})],
    ],
    Field(max_length=WEB_CONFIG_FIELDS_MAX),
]


class WebLimitsTaken(Taken):
    """How many requests a connection may make: both with `custom`, none with `disabled`, and with
    `inherit` at most the second."""

    requests_per_minute: Requests | None = None
    requests_per_run: Requests | None = None


class _WebAccessPut(Taken):
    provider: ProviderName | None = None
    config: Config = Field(default_factory=dict)
    api_key: ProviderKey | None = Field(
        default=None, repr=False, json_schema_extra={"writeOnly": True, "format": "password"}
    )
    """Left out, the key that this owner has for the provider stays; no other owner's is used."""
    clear_key: bool = False
    """With `disabled`: this owner's key for `provider` is forgotten."""
    limits: WebLimitsTaken | None = None
    version: Version


class InstanceWebAccessPut(_WebAccessPut):
    """All settings of the instance for one capability."""

    mode: Literal["custom", "disabled"]


class AgentWebAccessPut(_WebAccessPut):
    """All settings of an agent for one capability."""

    mode: Mode


class ConfigFieldShown(Shown):
    """A setting that a provider needs beside its key."""

    name: str
    title: str
    pattern: str
    """What the whole value matches."""
    hint: str


class ProviderShown(Shown):
    """A hosted provider, and what it does and does not enforce."""

    name: str
    title: str
    capabilities: list[Capability]
    origin: str
    """The only place that its requests go to."""
    key_hint: str
    config: list[ConfigFieldShown]
    query_characters_max: int | None
    query_words_max: int | None
    redirects: str
    subrequests: str
    restricts_hosts: bool
    """Whether it can be told which hosts it may open, and enforces that."""


class WebLimitsShown(Shown):
    """How many requests may be made."""

    requests_per_minute: int | None
    requests_per_run: int | None


class WebSettingsShown(Shown):
    """What is stored: with `version`, exactly what a `PUT` takes."""

    mode: Mode
    provider: str | None
    config: dict[str, str]
    limits: WebLimitsShown | None
    version: int


class KeptKeyShown(Shown):
    """That this owner has a key for a provider, and how old it is."""

    provider: str
    version: int
    updated_at: Time


class WebAccessShown(Shown):
    """One capability, as it stands for one owner."""

    capability: Capability
    providers: list[ProviderShown]
    settings: WebSettingsShown | None
    """Null where nothing was ever set; an agent without settings inherits."""
    effective_provider: str | None
    """Which provider is used; null where none is."""
    credential_source: CredentialSource | None
    """Whose key pays at it."""
    credential_present: bool
    """Whether that key is there; of a disabled capability whose settings name a provider, whether
    this owner's key for it is."""
    available: bool
    reason: Missing | None
    """Why it is not available."""
    effective_limits: WebLimitsShown | None
    """What counts for each run and each minute; null where it is not available."""
    kept_keys: list[KeptKeyShown]
    """This owner's own keys for providers of the capability."""


class WebAccessList(Shown):
    """Every capability."""

    capabilities: list[WebAccessShown]
