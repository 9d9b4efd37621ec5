"""Owns the catalogue: each hosted provider, described once.

Refuses code: the adapter of a provider is the module of its name beside this file, and is imported
when one of its calls is made.
"""

from __future__ import annotations

from typing import Final

from mesh.records.connection import Capability, ConfigField, Provider

_WHOLLY_THEIRS: Final = (
    "By the provider alone: Mesh hands the address over and cannot see or limit {what}. Mesh's own"
    " checks read the address as text; they pin no DNS answer."
)
_REDIRECTS: Final = _WHOLLY_THEIRS.format(what="where the page redirects to")
_SUBREQUESTS: Final = _WHOLLY_THEIRS.format(what="what the page loads")
_OPENS_NONE: Final = "None: a search opens no page, and Mesh opens no result."

BRAVE: Final = Provider(
    name="brave",
    title="Brave Search",
    capabilities=(Capability.SEARCH,),
    origin="https://api.search.brave.com",
    key_hint="A subscription token of the Brave Search API, for its plan with web search.",
    query_characters_max=400,
    query_words_max=50,
    redirects=_OPENS_NONE,
    subrequests=_OPENS_NONE,
)

PERPLEXITY: Final = Provider(
    name="perplexity",
    title="Perplexity Search",
    capabilities=(Capability.SEARCH,),
    origin="https://api.perplexity.ai",
    key_hint="An API key of Perplexity (pplx-…), with credit for its Search API.",
    redirects=_OPENS_NONE,
    subrequests=_OPENS_NONE,
)

FIRECRAWL: Final = Provider(
    name="firecrawl",
    title="Firecrawl",
    capabilities=(Capability.READ,),
    origin="https://api.firecrawl.dev",
    key_hint="An API key of Firecrawl (fc-…).",
    redirects=_REDIRECTS,
    subrequests=_SUBREQUESTS,
)

CLOUDFLARE: Final = Provider(
    name="cloudflare",
    title="Cloudflare Browser Rendering",
    capabilities=(Capability.READ,),
    origin="https://api.cloudflare.com",
    key_hint=(
        "A custom API token with the permission Account → Browser Rendering → Edit, for the one"
        " account; no zone permission and no Global API Key."
    ),
    config=(
        ConfigField(
            name="account_id",
            title="Account ID",
            pattern="[0-9a-f]{32}",
            hint="32 hexadecimal digits: Cloudflare's dashboard, Search, Copy account ID.",
        ),
    ),
    redirects=_REDIRECTS,
    subrequests=_SUBREQUESTS,
)

PROVIDERS: Final = {
    provider.name: provider for provider in (BRAVE, PERPLEXITY, FIRECRAWL, CLOUDFLARE)
}


def kept_for(provider: Provider) -> str:
    """What a key of the provider is sealed for: its name and its origin."""
    return f"{provider.name} {provider.origin}"
