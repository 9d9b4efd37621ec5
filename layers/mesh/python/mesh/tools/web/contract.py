"""Owns the words between the web's tools and the adapters of providers, and the seam of each.

Refuses what a provider wrote: neither its messages nor its bodies are ever in a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from mesh.records.connection import Provider


@dataclass(frozen=True, slots=True)
class Access:
    """What one request is made with: the connection's configuration, and its key in the clear."""

    config: Mapping[str, str]
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search, as the provider gave it: decoded, not yet bounded."""

    url: str
    title: str
    excerpt: str
    date: str | None = None
    """As `YYYY-MM-DD`, where the provider tells a date that can be read."""
    whole: bool = True
    """Whether the excerpt is all that the provider gave; a very long one is not read to its end."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page's content as the provider extracted it: not yet bounded."""

    markdown: str
    title: str | None = None


class Stage(StrEnum):
    """How far a request got that failed."""

    CREDENTIAL = "credential"
    """Its key could not be opened: nothing was sent."""
    REQUEST = "request"
    """No answer came. Whether it arrived is not always known."""
    ANSWER = "answer"
    """The provider answered, and not with a result."""
    PAGE = "page"
    """The provider answered that the page itself could not be read."""


class FailureKind(StrEnum):
    """What kept a request from its result."""

    AUTHORIZATION = "authorization"
    RATE = "rate"
    QUOTA = "quota"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    REFUSED = "refused"
    """The provider will not do this: a request that it calls invalid, a site that it does not
    open."""
    UNAVAILABLE = "unavailable"
    """The provider has an error of its own."""
    NOT_FOUND = "not_found"
    """The provider knows no such account or subscription."""
    HTTP_ERROR = "http_error"
    """The page answered with an error."""
    EMPTY = "empty"
    """There is no content."""


class ProviderFailure(Exception):
    """A request without a result. It holds no word of the provider's."""

    def __init__(
        self,
        stage: Stage,
        kind: FailureKind,
        *,
        retry_after_s: float | None = None,
        page_status: int | None = None,
    ) -> None:
        super().__init__(f"{stage.value}: {kind.value}")
        self.stage = stage
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.page_status = page_status
        """The status that the page answered with, where the provider tells it."""


class SearchAdapter(Protocol):
    """A provider of search."""

    @property
    def provider(self) -> Provider:
        """Its entry in the catalogue."""
        ...

    def search(self, query: str, limit: int, access: Access) -> tuple[Hit, ...]:
        """Up to `limit` results, best first; empty where nothing was found.

        One request, to the declared origin. Raises ProviderFailure.
        """
        ...


class ReadAdapter(Protocol):
    """A provider of page reading."""

    @property
    def provider(self) -> Provider:
        """Its entry in the catalogue."""
        ...

    def read(self, url: str, access: Access) -> Page:
        """The page at `url`, which was judged before.

        One request, to the declared origin. Raises ProviderFailure, also for a page that is empty
        or that answered with an error.
        """
        ...
