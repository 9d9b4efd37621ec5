"""Owns the calls of the web's two tools: judged, made by the provider of their grant, and told.

Refuses a second attempt, another provider than the grant's, and to open what a search returns. A
provider that fails is an observation; Mesh's own table that fails is the run's failure.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final, cast

from mesh.control.connections import open_provider_key
from mesh.kernel.clock import rfc3339
from mesh.kernel.errors import Failed
from mesh.kernel.limits import PAGE_BYTES_DEFAULT, WEB_QUERY_BYTES_MAX, WEB_RESULTS_DEFAULT
from mesh.records.connection import Grant, Provider
from mesh.security import pages
from mesh.security.urls import Refusal
from mesh.tools.contract import (
    Call,
    Handler,
    Observation,
    ObservationKind,
    Parts,
    provenance_of,
)
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from mesh.tools.web.contract import (
    Access,
    FailureKind,
    ProviderFailure,
    ReadAdapter,
    SearchAdapter,
    Stage,
)
from mesh.tools.web.failures import text_of

HANDLERS: Final = ("search", "fetch")


def handlers(parts: Parts) -> Mapping[str, Handler]:
    """The handlers, by the names that the manifest gives them."""
    return {"search": _Search(parts), "fetch": _Fetch(parts)}


class _Search:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def judge(self, arguments: Mapping[str, Any], grant: Grant | None) -> str | None:
        """See `Judging`. What the provider takes less of than the tool is told with its name."""
        from mesh.tools.web.cutting import is_blank

        query = str(arguments["query"])
        if any("\ud800" <= character <= "\udfff" for character in query):
            return "query: is no text"
        if is_blank(query):
            return "query: there is no word in it"
        if len(query.encode("utf-8")) > WEB_QUERY_BYTES_MAX:
            return f"query: has at most {WEB_QUERY_BYTES_MAX} bytes in UTF-8"
        return _against(grant) or _against_query(query, grant)

    def sources(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG002 - protocol
        """Which they are, the search tells."""
        return ()

    def __call__(self, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Raises Failed where Mesh's own table is unreachable."""
        from mesh.tools.web.cutting import search_observation

        grant, provider = _granted(call)
        limit = int(arguments.get("limit", WEB_RESULTS_DEFAULT))
        try:
            access = _access(self._parts, call, grant, provider)
            adapter = cast("SearchAdapter", _adapter("search_adapter", provider, self._parts))
            hits = adapter.search(str(arguments["query"]), limit, access)
        except ProviderFailure as failure:
            return _failed(provider, grant, failure)
        text, found = search_observation(hits[:limit])
        return _found(text, grant, found)


class _Fetch:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def judge(self, arguments: Mapping[str, Any], grant: Grant | None) -> str | None:
        """See `Judging`."""
        judged = pages.judge_page(str(arguments["url"]))
        if isinstance(judged, Refusal):
            return f"url: {judged.reason.value}: {judged.detail}"
        return _against(grant)

    def sources(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The page, as it is asked for."""
        judged = pages.judge_page(str(arguments["url"]))
        return () if isinstance(judged, Refusal) else (judged.url,)

    def __call__(self, arguments: Mapping[str, Any], call: Call) -> Observation:
        """Raises Failed where Mesh's own table is unreachable."""
        from mesh.tools.web.cutting import page_observation

        grant, provider = _granted(call)
        (url,) = self.sources(arguments)
        try:
            access = _access(self._parts, call, grant, provider)
            adapter = cast("ReadAdapter", _adapter("read_adapter", provider, self._parts))
            page = adapter.read(url, access)
            at = rfc3339(self._parts.clock.now_ms())
            most = int(arguments.get("max_bytes", PAGE_BYTES_DEFAULT))
            text = page_observation(url, page, at, most)
        except ProviderFailure as failure:
            return _failed(provider, grant, failure, url)
        return _found(text, grant, (url,))


class _Opening:
    """A key service whose failure is the credential's, and not that of Mesh's own table."""

    def __init__(self, parts: Parts) -> None:
        self._wrapper = parts.wrapper

    def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
        return self._wrapper.generate(context)

    def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        """Raises ProviderFailure."""
        try:
            return self._wrapper.unwrap(wrapped, context)
        except Failed as failed:
            shut = failed.code == "secret_unopenable"
        kind = FailureKind.AUTHORIZATION if shut else FailureKind.UNAVAILABLE
        raise ProviderFailure(Stage.CREDENTIAL, kind)


def _access(parts: Parts, call: Call, grant: Grant, provider: Provider) -> Access:
    """The grant's key, opened for this one request.

    Raises ProviderFailure, and Failed (`unavailable`) where the table is unreachable.
    """
    key = None
    try:
        key = open_provider_key(
            parts.table, _Opening(parts), call.agent_id, grant, kept_for(provider)
        )
    except Failed as failed:
        if failed.code == "unavailable":
            raise
    if key is None:
        raise ProviderFailure(Stage.CREDENTIAL, FailureKind.AUTHORIZATION)
    return Access(grant.config, key)


def _adapter(makes: str, provider: Provider, parts: Parts) -> object:
    """The provider's adapter, from the module of its name, which is imported when it is needed."""
    module = importlib.import_module(f"mesh.tools.web.{provider.name}")
    return getattr(module, makes)(parts.egress(), parts.clock)


def _granted(call: Call) -> tuple[Grant, Provider]:
    """What the call is made by. A call without it was never admitted."""
    assert call.grant is not None, "a tool of a capability is called on a grant"
    return call.grant, PROVIDERS[call.grant.provider]


def _against(grant: Grant | None) -> str | None:
    """What stands against a request by the grant, whatever it asks for: nothing is admitted that
    its adapter would refuse to send."""
    from mesh.tools.web.exchange import fits

    if grant is None:
        return None
    provider = PROVIDERS.get(grant.provider)
    if provider is None or grant.capability not in provider.capabilities:
        return "an operator must choose another provider: the one that is set is not known here"
    if not fits(provider, grant.config):
        return f"an operator must set the connection to {provider.name} again: it does not fit"
    return None


def _against_query(query: str, grant: Grant | None) -> str | None:
    """What the grant's provider has against a query."""
    if grant is None:
        return None
    provider = PROVIDERS[grant.provider]
    most = provider.query_characters_max
    if most is not None and len(query) > most:
        return f"query: {provider.name} takes at most {most} characters"
    most = provider.query_words_max
    if most is not None and len(query.split()) > most:
        return f"query: {provider.name} takes at most {most} words"
    return None


def _found(text: str, grant: Grant, sources: tuple[str, ...]) -> Observation:
    return Observation(
        kind=ObservationKind.RESULT, text=text, provenance=provenance_of(grant), sources=sources
    )


def _failed(
    provider: Provider, grant: Grant, failure: ProviderFailure, *sources: str
) -> Observation:
    return Observation(
        kind=ObservationKind.FAILED,
        text=text_of(provider, failure),
        provenance=provenance_of(grant),
        sources=sources,
    )
