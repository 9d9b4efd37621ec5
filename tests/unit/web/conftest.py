"""The adapter of each provider in turn, for the suites that hold all of them to the one
contract."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator

import pytest
import trustme

from tests.unit.web.apis import READ, SAID, SEARCH, Api

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority.configure_trust(context)
    return context


@pytest.fixture(scope="session")
def secured(authority: trustme.CA, trusting: ssl.SSLContext) -> Callable[[str], Contexts]:
    """The contexts of both ends, with a certificate for the provider's own host."""
    served: dict[str, ssl.SSLContext] = {}

    def contexts(name: str) -> Contexts:
        if name not in served:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(Api.host_of(name)).configure_cert(context)
            served[name] = context
        return served[name], trusting

    return contexts


@pytest.fixture(params=SAID)
def api(request: pytest.FixtureRequest, secured: Callable[[str], Contexts]) -> Iterator[Api]:
    yield from _api(request.param, secured)


@pytest.fixture(params=SEARCH)
def search(request: pytest.FixtureRequest, secured: Callable[[str], Contexts]) -> Iterator[Api]:
    yield from _api(request.param, secured)


@pytest.fixture(params=READ)
def read(request: pytest.FixtureRequest, secured: Callable[[str], Contexts]) -> Iterator[Api]:
    yield from _api(request.param, secured)


def _api(name: str, secured: Callable[[str], Contexts]) -> Iterator[Api]:
    api = Api(name, secured(name))
    yield api
    api.close()
    assert api.server.broken == []
    assert api.peer.connections <= len(api.egress.sent), "a request is one connection"
