"""Every failure that a request can come to is told by provider, stage and kind, with advice that
fits it and that it counted; and with nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from mesh.security.egress import EgressFailureKind
from mesh.tools.web import (
    brave,
    catalogue,
    cloudflare,
    exchange,
    failures,
    firecrawl,
    handlers,
    perplexity,
)
from mesh.tools.web.contract import FailureKind, ProviderFailure, Stage
from tests.fakes.egress import ScriptedEgress, answer, failure
from tests.fakes.time import SimulatedClock
from tests.fakes.web_servers import PRIVATE
from tests.unit.web.apis import outcome

K = FailureKind
CREDENTIAL, REQUEST, ANSWER, PAGE = Stage.CREDENTIAL, Stage.REQUEST, Stage.ANSWER, Stage.PAGE
Pair = tuple[Stage, FailureKind]

OPERATOR = ("an operator", "do not try it again in this run")
AGAIN = ("another attempt may go better",)
ELSEWHERE = ("another source",)
CHECK_IT = ("look whether its url is right",)

ADVICE: dict[Pair, tuple[str, ...]] = {
    (CREDENTIAL, K.AUTHORIZATION): ("key", *OPERATOR),
    (CREDENTIAL, K.UNAVAILABLE): ("key", *AGAIN),
    (CREDENTIAL, K.REFUSED): ("settings of the connection", *OPERATOR),
    (REQUEST, K.TIMEOUT): ("too long", *AGAIN, "counts as well"),
    (REQUEST, K.UNREACHABLE): ("could not be reached", *AGAIN, "counts as well"),
    (ANSWER, K.AUTHORIZATION): ("key", "permissions", "terms", *OPERATOR),
    (ANSWER, K.RATE): ("fewer requests", "wait"),
    (ANSWER, K.QUOTA): ("allowance or credit", *OPERATOR),
    (ANSWER, K.TIMEOUT): ("too long", *AGAIN, "counts as well"),
    (ANSWER, K.MALFORMED): ("no answer of the provider's", "without it"),
    (ANSWER, K.TOO_LARGE): ("larger than is read", "something else"),
    (ANSWER, K.REFUSED): ("does not do what it was asked", "ask otherwise"),
    (ANSWER, K.UNAVAILABLE): ("error of its own", *AGAIN, "counts as well"),
    (ANSWER, K.NOT_FOUND): ("no such account", *OPERATOR),
    (PAGE, K.TIMEOUT): ("page took too long", *ELSEWHERE),
    (PAGE, K.UNREACHABLE): ("page could not be reached", *CHECK_IT),
    (PAGE, K.UNAVAILABLE): ("broke off", *ELSEWHERE),
    (PAGE, K.REFUSED): ("does not read that page", *ELSEWHERE),
    (PAGE, K.TOO_LARGE): ("larger than is read", *ELSEWHERE),
    (PAGE, K.HTTP_ERROR): ("answered with an error", *CHECK_IT),
    (PAGE, K.EMPTY): ("no text on the page", *ELSEWHERE),
}
"""Words of the advice for everything that a request can come to."""
EVERY = pytest.mark.parametrize(("stage", "kind"), ADVICE, ids=lambda each: each.value)
HOW_FAR = {
    CREDENTIAL: "before anything was sent",
    REQUEST: "not known whether the request arrived",
    ANSWER: "answered without a result",
    PAGE: "could not read the page",
}


def produced() -> Iterator[Pair]:
    """Every pair that stands in the source of what makes failures; a kind that stands alone is of
    an answer."""
    for module in (exchange, brave, perplexity, firecrawl, cloudflare):
        source = inspect.getsource(module)
        for stage, kind in re.findall(r"Stage\.([A-Z]+), FailureKind\.([A-Z_]+)", source):
            yield Stage[stage], FailureKind[kind]
        for kind in re.findall(r'": FailureKind\.([A-Z_]+)', source):
            yield ANSWER, FailureKind[kind]
    for status in range(200, 600):
        yield ANSWER, exchange.kind_of_status(status)
    for kind in re.findall(r"FailureKind\.([A-Z]+)\b", inspect.getsource(handlers._Opening)):
        yield CREDENTIAL, FailureKind[kind]


def test_what_is_told_here_is_all_that_a_request_can_come_to() -> None:
    assert set(produced()) == set(ADVICE)


@pytest.mark.parametrize("kind", EgressFailureKind)
@pytest.mark.parametrize("name", catalogue.PROVIDERS)
def test_whatever_the_way_out_says_has_a_text_of_its_own(
    name: str, kind: EgressFailureKind
) -> None:
    egress = ScriptedEgress()
    egress.otherwise = failure(kind)
    provider = catalogue.PROVIDERS[name]
    with pytest.raises(ProviderFailure) as caught:
        exchange.Exchange(provider, egress, SimulatedClock()).get("/x", {}, 1.0)
    assert outcome(caught.value) in ADVICE


@pytest.mark.behaviour("web:failures")
@pytest.mark.parametrize("name", catalogue.PROVIDERS)
@EVERY
def test_a_failure_is_told_by_provider_stage_and_kind_with_advice_that_fits(
    name: str, stage: Stage, kind: FailureKind
) -> None:
    text = failures.text_of(catalogue.PROVIDERS[name], ProviderFailure(stage, kind))
    assert text.startswith(f"{name}, {stage.value}: {kind.value} (")
    assert HOW_FAR[stage] in text
    for words in ADVICE[stage, kind]:
        assert words in text.lower()
    assert text.endswith(" The attempt counted, and is not repeated by itself.")
    assert text.count("The attempt counted") == 1


@EVERY
def test_what_only_an_operator_mends_is_not_told_to_go_better(
    stage: Stage, kind: FailureKind
) -> None:
    text = failures.text_of(catalogue.BRAVE, ProviderFailure(stage, kind)).lower()
    mended_by_others = "an operator" in text
    assert mended_by_others == ("do not try it again in this run" in text)
    assert not (mended_by_others and "may go better" in text)


@EVERY
def test_when_to_come_again_is_told_where_the_provider_tells_it(
    stage: Stage, kind: FailureKind
) -> None:
    def told(after_s: float | None) -> str:
        found = ProviderFailure(stage, kind, retry_after_s=after_s)
        return failures.text_of(catalogue.BRAVE, found)

    assert "It asks to be left alone for 7 s." in told(7.0)
    assert "It asks to be left alone for 1 s." in told(0.2)
    assert "It asks to be left alone for 2678400 s." in told(2_678_400.0)
    assert told(0.0) == told(None), "a time that is over is no wait"
    assert "left alone" not in told(None)


def test_a_time_to_wait_comes_from_the_answer_to_the_model() -> None:
    egress = ScriptedEgress()
    egress.otherwise = answer(429, PRIVATE.encode(), retry_after="90")
    asked = exchange.Exchange(catalogue.BRAVE, egress, SimulatedClock()).get("/x", {}, 1.0)
    text = failures.text_of(catalogue.BRAVE, asked.failure())
    assert text.startswith("brave, answer: rate (")
    assert "It asks to be left alone for 90 s." in text
    assert "PRIVATE" not in text


def test_a_pages_own_status_is_told() -> None:
    found = ProviderFailure(PAGE, K.HTTP_ERROR, page_status=404)
    text = failures.text_of(catalogue.FIRECRAWL, found)
    assert text.startswith("firecrawl, page: http_error 404 (")


@pytest.mark.behaviour("web:failures")
@pytest.mark.parametrize("name", catalogue.PROVIDERS)
@EVERY
def test_nothing_else_is_told(name: str, stage: Stage, kind: FailureKind) -> None:
    provider = catalogue.PROVIDERS[name]
    plain = failures.text_of(provider, ProviderFailure(stage, kind))
    loaded = ProviderFailure(stage, kind)
    loaded.args = (PRIVATE,)
    loaded.add_note(PRIVATE)
    loaded.__cause__ = ValueError(PRIVATE)
    assert failures.text_of(provider, loaded) == plain
    assert re.search(r"[0-9/@]", plain.partition(": ")[2]) is None, "no address and no number"
    assert provider.origin.removeprefix("https://") not in plain
    assert plain.isascii()
    assert len(plain) < 500
