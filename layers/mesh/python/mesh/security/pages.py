"""Owns the judgement of a page's address that somebody else will open: public, and written so that
whoever reads it finds the same host.

Refuses to resolve a name: where one leads to, the provider finds out, at another time and place.
Seed 001, "Public page reading".
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.limits import URL_CHARS_MAX
from mesh.security.addresses import embeds_v4, judge
from mesh.security.urls import DEFAULT_PORTS, Parts, Reason, Refusal, Target, parse, target_of

_LOCAL_ENDINGS: Final = (
    ".localhost",  # RFC 6761, as is `test`
    ".localdomain",
    ".test",
    ".local",  # multicast DNS, RFC 6762
    ".home.arpa",  # RFC 8375
    ".internal",  # set apart by ICANN; clouds name their metadata services below it
    ".intranet",  # what follows is set apart by nobody, and in use behind many a router
    ".private",
    ".corp",
    ".home",
    ".lan",
)


def judge_page(url: str) -> Target | Refusal:
    """The public page that `url` names, or the first reason against having it opened by somebody
    else. What is handed on is the target's own spelling, without the fragment, which no server
    sees.

    Hosts that are local by their name are those of one label and those below `_LOCAL_ENDINGS`. An
    address is taken only as it is usually written. No name is resolved: where one leads to, the
    provider finds out, at another time and place. Seed 001, "Public page reading". The details
    name the rule, and nothing of the URL.
    """
    parts = parse(url)
    if isinstance(parts, Refusal) and parts.reason is not Reason.SCHEME:
        return parts
    if isinstance(parts, Refusal) or parts.scheme not in DEFAULT_PORTS:
        return Refusal(Reason.SCHEME, "a public page has a URL with http:// or https://")
    if parts.userinfo:
        return Refusal(Reason.USERINFO, "a user or password in the URL")
    target = target_of(parts)
    if target is None:
        return Refusal(Reason.HOST, "the host is neither a name nor an address")
    if target.port != DEFAULT_PORTS[target.scheme]:
        return Refusal(Reason.PORT, "a port other than the scheme's own")
    if target.address is not None:
        if not parts.plain or embeds_v4(target.address):
            return Refusal(Reason.ADDRESS, "an address that is not written as one is ambiguous")
        if judge(target.address) is not None:
            return Refusal(Reason.ADDRESS, "the address is private or reserved")
    elif _is_local(target.host):
        return Refusal(Reason.HOST, "the host is a local one")
    if len(target.url) > URL_CHARS_MAX:
        return Refusal(Reason.MALFORMED, "too long once it is encoded")
    return target


def is_page_url(url: str) -> bool:
    """Whether `url` names something on the web: http or https, and a host, also one that is
    spelled as no host name should be."""
    parts = parse(url)
    return isinstance(parts, Parts) and parts.scheme in DEFAULT_PORTS


def _is_local(host: str) -> bool:
    """Whether a name is of one label, or below an ending that no public name has."""
    return "." not in host or f".{host}".endswith(_LOCAL_ENDINGS)
