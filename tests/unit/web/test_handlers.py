"""What the two tools make of a call that was admitted, and by whose name they tell what came of
it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.kernel.limits import PAGE_BYTES_DEFAULT, WEB_RESULTS_DEFAULT
from mesh.tools.contract import Observation, ObservationKind
from tests.fakes import cloudflare_server, firecrawl_server
from tests.fakes.model_servers import WireReply, as_json
from tests.fakes.web_servers import JSON, PRIVATE
from tests.unit.web.apis import PAGE_URL, READ, SAID, SEARCH
from tests.unit.web.bench import AGENT, INSTANCE, Bench, capability_of, document

EVERY = pytest.mark.parametrize("name", SAID)
OWNERS = pytest.mark.parametrize(
    ("owner", "credential"), [(INSTANCE, "instance"), (AGENT, "agent")]
)


# ---- what is told, and by whose name


def provenance(name: str, credential: str) -> dict[str, str]:
    return {
        "capability": capability_of(name).value,
        "provider": name,
        "credential": credential,
    }


@pytest.mark.behaviour("search:providers", "fetch:providers", "evidence:identified")
@EVERY
@OWNERS
def test_a_result_names_its_capability_its_provider_and_whose_key_paid(
    name: str, owner: str, credential: str
) -> None:
    bench = Bench()
    observation = bench.make(bench.connect(name, owner))
    assert observation.kind is ObservationKind.RESULT
    assert observation.provenance == provenance(name, credential)
    assert bench.servers[name].broken == []
    assert len(bench.egress.calls) == 1


@pytest.mark.behaviour("web:failures", "evidence:identified")
@EVERY
@OWNERS
def test_a_failure_names_them_as_well_and_holds_nothing_of_the_providers(
    name: str, owner: str, credential: str
) -> None:
    bench = Bench()
    grant = bench.connect(name, owner)
    key = bench.servers[name].key
    bench.answers(name, WireReply(500, as_json({"error": f"{PRIVATE} {key}"}), JSON))
    observation = bench.make(grant)
    assert observation.kind is ObservationKind.FAILED
    assert observation.provenance == provenance(name, credential)
    assert observation.text.startswith(f"{name}, answer: unavailable (")
    assert observation.sources == ((PAGE_URL,) if name in READ else ())
    for told in (observation.text, repr(observation)):
        assert "PRIVATE" not in told
        assert key not in told
    assert len(bench.egress.calls) == 1, "nothing is asked for again"


@pytest.mark.behaviour("web:failures")
@pytest.mark.parametrize(
    ("name", "error"), [(name, error) for name, said in SAID.items() for error in said.errors]
)
def test_every_error_of_an_api_is_an_observation_without_a_word_of_it(
    name: str, error: str
) -> None:
    bench = Bench()
    grant = bench.connect(name)
    bench.answers(name, SAID[name].errors[error])
    observation = bench.make(grant)
    assert observation.kind is ObservationKind.FAILED
    assert "PRIVATE" not in observation.text
    assert "goats.example" not in observation.text
    assert observation.text.endswith("The attempt counted, and is not repeated by itself.")


@pytest.mark.behaviour("search:limit")
@pytest.mark.parametrize("name", SEARCH)
@pytest.mark.parametrize(
    ("given", "wanted"), [({}, WEB_RESULTS_DEFAULT), ({"limit": 1}, 1), ({"limit": 10}, 10)]
)
def test_a_search_asks_for_five_results_or_as_many_as_it_is_told(
    name: str, given: dict[str, int], wanted: int
) -> None:
    bench = Bench()
    found = document(bench.make(bench.connect(name), query="goats", **given))["results"]
    (asked,) = bench.servers[name].asked
    assert int(asked.options.get("count", asked.options.get("max_results"))) == wanted
    assert [each["rank"] for each in found] == list(range(1, wanted + 1))


@pytest.mark.parametrize("name", SEARCH)
def test_more_than_was_asked_for_is_not_told(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    module: Any = SAID[name].module
    bench.servers[name].says(module.found(*(module.result(n) for n in range(20))))
    observation = bench.make(grant, query="goats", limit=3)
    assert len(document(observation)["results"]) == len(observation.sources) == 3


def big_page(name: str, markdown: str) -> Any:
    if name == "firecrawl":
        return firecrawl_server.page(PAGE_URL, markdown=markdown)
    return cloudflare_server.page(markdown)


@pytest.mark.behaviour("fetch:max-bytes")
@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize(
    ("given", "most"),
    [({}, PAGE_BYTES_DEFAULT), ({"max_bytes": 1}, 1), ({"max_bytes": 20_000}, 20_000)],
)
def test_a_page_is_cut_at_twelve_thousand_bytes_or_where_it_is_told(
    name: str, given: dict[str, int], most: int
) -> None:
    bench = Bench()
    grant = bench.connect(name)
    bench.servers[name].says(big_page(name, "x" * 30_000))
    told = document(bench.make(grant, url=PAGE_URL, **given))
    assert (len(told["content"]), told["truncated"]) == (most, True)


# ---- pages


@pytest.mark.behaviour("fetch:no-final-url", "fetch:result")
@pytest.mark.parametrize("name", READ)
def test_the_address_after_redirects_is_told_nowhere(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    final = "https://elsewhere.example/final"
    if name == "firecrawl":
        about = {"url": final, "ogUrl": final, "sourceURL": PAGE_URL}
        bench.servers[name].says(firecrawl_server.page(PAGE_URL, metadata=about))
    else:
        bench.servers[name].says(cloudflare_server.page(meta={"url": final, "status": 200}))
    observation = bench.make(grant)
    told = document(observation)
    assert set(told) - {"title"} == {"requested_url", "content", "retrieved_at", "truncated"}
    assert told["requested_url"] == PAGE_URL
    assert observation.sources == (PAGE_URL,)
    assert "elsewhere" not in repr(observation) + observation.text


@pytest.mark.behaviour("fetch:block-pages")
@pytest.mark.parametrize("name", READ)
def test_a_sites_block_page_comes_as_content_and_nobody_calls_it_the_page(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    block = "# Attention Required!\n\nSorry, you have been blocked. Ray ID: 0"
    bench.servers[name].says(big_page(name, block))
    observation = bench.make(grant)
    assert observation.kind is ObservationKind.RESULT
    told = document(observation)
    assert told["content"] == block
    assert not {"ok", "success", "status", "final_url"} & set(told)


NO_PAGES: dict[str, dict[str, WireReply]] = {
    "firecrawl": {
        "empty": WireReply(200, as_json(firecrawl_server.page(PAGE_URL, markdown=" \n")), JSON),
        "unsuccessful": firecrawl_server.ERRORS["unsuccessful"],
        "an error page": WireReply(
            200,
            as_json(
                firecrawl_server.page(PAGE_URL, metadata={"statusCode": 404, "error": PRIVATE})
            ),
            JSON,
        ),
    },
    "cloudflare": {
        "empty": WireReply(200, as_json(cloudflare_server.page("\u200b\n")), JSON),
        "unsuccessful": cloudflare_server.ERRORS["unsuccessful"],
        "an error page": WireReply(
            200, as_json(cloudflare_server.page(PRIVATE, meta={"status": 404})), JSON
        ),
    },
}


@pytest.mark.behaviour("fetch:failures", "web:failures")
@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("case", ["empty", "unsuccessful", "an error page"])
def test_what_is_no_page_fails_without_what_the_vendor_sent(name: str, case: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    bench.answers(name, NO_PAGES[name][case])
    observation = bench.make(grant)
    assert observation.kind is ObservationKind.FAILED
    assert "PRIVATE" not in observation.text
    assert observation.sources == (PAGE_URL,), "it is evidence that it was asked for"
    if case == "an error page":
        assert observation.text.startswith(f"{name}, page: http_error 404 (")


def test_an_observation_shows_neither_text_nor_key_in_its_repr() -> None:
    bench = Bench()
    observation = bench.make(bench.connect("brave"))
    assert isinstance(observation, Observation)
    assert json.loads(observation.text)["results"]
    assert "goat" not in repr(observation).replace("goats.example", "")
    assert bench.servers["brave"].key not in repr(observation) + observation.text
