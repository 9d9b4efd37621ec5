"""A key that does not open is an observation, and nothing is sent; a table that is not there is the
run's failure. Neither holds a key, or a word of whoever failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from infra.local.aws import Faults, Kind
from mesh.control.connections import open_provider_key
from mesh.kernel.errors import Failed
from mesh.records.connection import Capability, Grant
from mesh.storage import keys
from mesh.storage.kms import KmsWrapper
from mesh.storage.writes import delete, put
from mesh.tools.contract import ObservationKind
from mesh.tools.web import handlers
from mesh.tools.web.catalogue import PROVIDERS, kept_for
from mesh.tools.web.contract import Access, FailureKind, ProviderFailure, Stage
from tests.fakes.web_servers import PRIVATE
from tests.unit.web.apis import SAID, all_of
from tests.unit.web.bench import AGENT, INSTANCE, Bench

KEY = "canary-k5Wd8Qx2Lm7Rv4Bt9Zc1"
OTHER = "canary-h3Nf6Yj0Ps8Gd2Kw5Ua7"


class Refusing:
    """A client of KMS whose every call fails, in words that must go no further."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def decrypt(self, **_: Any) -> Any:
        raise self._error


def kms_says(code: str) -> Callable[[Bench], None]:
    told = {"Error": {"Code": code, "Message": PRIVATE}}
    return kms_fails(ClientError(told, "Decrypt"))


def kms_fails(error: Exception) -> Callable[[Bench], None]:
    def change(bench: Bench) -> None:
        bench.opened = KmsWrapper(lambda: Refusing(error), "key")

    return change


def flipped(data: bytes, at: int = -1) -> bytes:
    whole = bytearray(data)
    whole[at] ^= 1
    return bytes(whole)


def _take_from(bench: Bench, name: str, owner: str, to: str) -> None:
    """Puts a fresh key of one owner where the owner `to` has theirs for Brave."""
    bench.connections.rotate(owner, name, OTHER)
    _put_row(bench, bench.row(name, owner), to, "brave")


def _put_row(bench: Bench, row: Mapping[str, Any], owner: str, name: str) -> None:
    taken = {k: v for k, v in row.items() if k not in ("pk", "sk")}
    bench.table.write(put(keys.provider_key(owner, name), taken | {"version": 1}))


def _other_data_key(bench: Bench) -> None:
    bench.connections.rotate(INSTANCE, "perplexity", OTHER)
    bench.change("brave", blob=bench.row("perplexity")["blob"])


SHUT: dict[str, Callable[[Bench], object]] = {
    "gone": lambda b: b.table.write(delete(keys.provider_key(INSTANCE, "brave"))),
    "forgotten": lambda b: b.change("brave", blob=None, wrapped=None),
    "half forgotten": lambda b: b.change("brave", wrapped=None),
    "another version": lambda b: b.connections.rotate(INSTANCE, "brave", OTHER),
    "disabled meanwhile": lambda b: b.connections.disable(INSTANCE),
    "opted out meanwhile": lambda b: b.connections.disable(AGENT),
    "another provider meanwhile": lambda b: b.connections.connect(
        INSTANCE, provider="perplexity", key=OTHER
    ),
    "other limits meanwhile": lambda b: b.connections.connect(INSTANCE, key=None, per_run=1),
    "the same under another version": lambda b: b.change("brave", version=2),
    "damaged at its end": lambda b: b.change("brave", blob=flipped(b.row("brave")["blob"])),
    "damaged at its nonce": lambda b: b.change("brave", blob=flipped(b.row("brave")["blob"], 3)),
    "of another form": lambda b: b.change("brave", blob=flipped(b.row("brave")["blob"], 0)),
    "cut short": lambda b: b.change("brave", blob=b.row("brave")["blob"][:20]),
    "a byte": lambda b: b.change("brave", blob=b"\x01"),
    "a damaged data key": lambda b: b.change("brave", wrapped=flipped(b.row("brave")["wrapped"])),
    "a data key that is none": lambda b: b.change("brave", wrapped=b"none"),
    "under another's data key": _other_data_key,
    "another owner's": lambda b: _take_from(b, "brave", AGENT, INSTANCE),
    "another provider's": lambda b: _take_from(b, "perplexity", INSTANCE, INSTANCE),
    "for another origin": lambda b: b.keep(
        "brave", KEY.encode(), sealed_for="brave https://api.search.brave.com.evil.example"
    ),
    "for plain HTTP": lambda b: b.keep(
        "brave", KEY.encode(), sealed_for="brave http://api.search.brave.com"
    ),
    "no text": lambda b: b.keep("brave", KEY.encode() + b"\xff\xfe"),
    "two lines": lambda b: b.keep("brave", f"{KEY}\r\nX-Evil: 1".encode()),
    "letters that no header takes": lambda b: b.keep("brave", f"{KEY}é".encode()),
    "blank": lambda b: b.keep("brave", b" "),
    "empty": lambda b: b.keep("brave", b""),
    "KMS takes it for nothing": kms_says("InvalidCiphertextException"),
}
CLOSED: dict[str, Callable[[Bench], object]] = {
    "KMS refuses": kms_says("AccessDeniedException"),
    "KMS's key is off": kms_says("DisabledException"),
    "KMS is throttled": kms_says("ThrottlingException"),
    "KMS has an error": kms_says("KMSInternalException"),
    "KMS is not reached": kms_fails(EndpointConnectionError(endpoint_url=f"https://{PRIVATE}")),
}


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[ProviderFailure]:
    """The failures that observations were made of, with everything behind them."""
    found: list[ProviderFailure] = []
    told = handlers.text_of

    def text_of(provider: Any, failure: ProviderFailure) -> str:
        found.append(failure)
        return told(provider, failure)

    monkeypatch.setattr(handlers, "text_of", text_of)
    return found


def assert_clean(*told: str) -> None:
    """Holds that no key is in what was told, whole or in part, and nobody else's word."""
    for text in told:
        for word in ("canary", KEY[7:], OTHER[7:], "PRIVATE", "X-Evil", "evil.example", "decrypt"):
            assert word not in text, text


def assert_not_sent(
    bench: Bench,
    grant: Grant,
    kind: FailureKind,
    failures: list[ProviderFailure],
    capsys: pytest.CaptureFixture[str],
) -> None:
    observation = bench.make(grant)
    assert observation.kind is ObservationKind.FAILED
    first, _, rest = observation.text.partition(" (")
    assert first == f"{grant.provider}, credential: {kind.value}"
    assert rest.startswith("before anything was sent). ")
    assert observation.provenance == {
        "capability": grant.capability.value,
        "provider": grant.provider,
        "credential": grant.source.value,
    }
    assert bench.egress.calls == []
    assert all(server.requests == [] for server in bench.servers.values())
    (failure,) = failures
    assert (failure.stage, failure.kind) == (Stage.CREDENTIAL, kind)
    assert failure.__cause__ is None
    assert failure.__context__ is None
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", ""), "there is no log of it"
    assert_clean(observation.text, repr(observation), all_of(failure))


@pytest.mark.behaviour("web:failures", "web:no-fallback")
@pytest.mark.parametrize("case", SHUT)
def test_a_key_that_does_not_open_sends_nothing_and_says_nothing(
    case: str, failures: list[ProviderFailure], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench()
    grant = bench.connect("brave", key=KEY)
    SHUT[case](bench)
    assert_not_sent(bench, grant, FailureKind.AUTHORIZATION, failures, capsys)


@pytest.mark.behaviour("web:failures")
@pytest.mark.parametrize("case", CLOSED)
def test_a_key_that_cannot_be_opened_now_sends_nothing_and_says_nothing(
    case: str, failures: list[ProviderFailure], capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench()
    grant = bench.connect("brave", key=KEY)
    CLOSED[case](bench)
    assert_not_sent(bench, grant, FailureKind.UNAVAILABLE, failures, capsys)


@pytest.mark.behaviour("web:override-stands", "web:no-fallback")
@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize(
    "loses",
    [
        lambda b, name: b.table.write(delete(keys.provider_key(AGENT, name))),
        lambda b, name: b.change(name, AGENT, blob=flipped(b.row(name, AGENT)["blob"])),
        lambda b, name: _put_row(b, b.row(name, INSTANCE), AGENT, name),
    ],
    ids=["gone", "damaged", "the instance's in its place"],
)
def test_the_key_of_the_instance_is_never_in_the_place_of_an_agents_own(
    name: str,
    loses: Callable[[Bench, str], object],
    failures: list[ProviderFailure],
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = Bench()
    bench.connect(name)
    grant = bench.connect(name, AGENT, KEY)
    loses(bench, name)
    assert_not_sent(bench, grant, FailureKind.AUTHORIZATION, failures, capsys)


def test_a_connection_whose_account_is_none_sends_nothing(
    failures: list[ProviderFailure], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was judged before it was admitted; this is what holds where it was not."""
    bench = Bench()
    bench.connections.connect(
        capability=Capability.READ, provider="cloudflare", key=KEY, account_id="../../user/tokens"
    )
    assert_not_sent(bench, bench.grant("cloudflare"), FailureKind.REFUSED, failures, capsys)


@pytest.mark.behaviour("engine:execution-failures")
@pytest.mark.parametrize("name", SAID)
def test_a_table_that_is_not_reached_is_no_observation(
    name: str, failures: list[ProviderFailure]
) -> None:
    faults = Faults(1, rates={Kind.UNREACHABLE: 1.0}, in_a_row_max=1_000)
    bench = Bench(faults)
    grant = bench.connect(name, key=KEY)
    with pytest.raises(Failed) as caught:
        bench.make(grant)
    assert caught.value.code == "unavailable"
    assert_clean(all_of(caught.value))
    assert failures == []
    assert bench.egress.calls == []
    assert bench.made == 0, "no way out was asked for"


def test_what_does_not_open_as_text_is_in_no_chain_of_errors() -> None:
    bench = Bench()
    grant = bench.connect("brave")
    bench.keep("brave", KEY.encode() + b"\xff")
    with pytest.raises(Failed) as caught:
        open_provider_key(bench.table, bench.wrapper, AGENT, grant, kept_for(PROVIDERS["brave"]))
    assert caught.value.code == "secret_unopenable"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("name", SAID)
def test_a_key_with_space_around_it_is_used_without_it(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name, key=f"  {bench.servers[name].key}\n")
    assert bench.make(grant).kind is ObservationKind.RESULT


def test_what_a_request_is_made_with_does_not_show_its_key() -> None:
    access = Access({"account_id": "a" * 32}, KEY)
    assert_clean(repr(access), str(access), f"{access}")
