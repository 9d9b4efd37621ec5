"""A provider is one entry of the catalogue and one adapter, and nothing else in the system knows
its name; requests go to its declared origin, and nowhere that an answer points to."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mesh
from infra.layers import ROOT
from mesh.kernel.limits import SEARCH_OBSERVATION_BYTES_MAX
from mesh.records.connection import Capability, Provider
from mesh.tools import packages
from mesh.tools.contract import Observation, ObservationKind
from mesh.tools.web import catalogue
from mesh.tools.web.catalogue import PROVIDERS
from mesh.tools.web.contract import Hit
from tests.structure.test_handlers import loaded
from tests.unit.web.apis import PAGE_URL, SAID, SEARCH, adapter_of
from tests.unit.web.bench import Bench, capability_of, document

MESH = Path(mesh.__file__).parent
WEB = MESH / "tools" / "web"
MAKERS = ("search_adapter", "read_adapter")
EVERY = pytest.mark.parametrize("name", PROVIDERS)


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(module: ast.Module) -> set[str]:
    """What a module imports, wherever in it: modules, and names out of them."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def words(module: ast.Module) -> Iterator[str]:
    """Every name and every text of a module's code; what documents it is none of it."""
    documents = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documents:
                yield node.value
        else:
            for field in ("id", "attr", "name", "arg", "asname", "module"):
                value = getattr(node, field, None)
                if isinstance(value, str):
                    yield value


# ---- one entry, one adapter


@pytest.mark.behaviour("web:adapters", "search:providers", "fetch:providers")
def test_the_providers_are_these_and_each_serves_one_capability() -> None:
    assert {name: each.capabilities for name, each in PROVIDERS.items()} == {
        "brave": (Capability.SEARCH,),
        "perplexity": (Capability.SEARCH,),
        "firecrawl": (Capability.READ,),
        "cloudflare": (Capability.READ,),
    }
    origins = [each.origin for each in PROVIDERS.values()]
    assert len(set(origins)) == len(origins)


@pytest.mark.behaviour("web:adapters")
def test_each_provider_has_one_entry_and_one_module_and_no_module_is_left_over() -> None:
    adapters = {
        file.stem: [
            node.name
            for node in tree(file).body
            if isinstance(node, ast.FunctionDef) and node.name in MAKERS
        ]
        for file in WEB.glob("*.py")
    }
    assert {name: made for name, made in adapters.items() if made} == {
        name: ["search_adapter" if Capability.SEARCH in each.capabilities else "read_adapter"]
        for name, each in PROVIDERS.items()
    }
    entries = [each for each in vars(catalogue).values() if isinstance(each, Provider)]
    assert sorted(each.name for each in entries) == sorted(PROVIDERS)
    assert all(PROVIDERS[name].name == name for name in PROVIDERS)


@pytest.mark.behaviour("web:adapters")
@EVERY
def test_an_entry_is_data_and_its_adapter_has_no_other(name: str) -> None:
    bench = Bench()
    provider = PROVIDERS[name]
    assert adapter_of(name, bench.egress, bench.clock).provider is provider
    assert msgspec.json.decode(msgspec.json.encode(provider), type=Provider) == provider
    assert provider.origin.startswith("https://")
    assert "/" not in provider.origin.removeprefix("https://")
    for told in (provider.title, provider.key_hint, provider.redirects, provider.subrequests):
        assert told.strip()


@pytest.mark.behaviour("web:adapters", "web:no-vendor-tools")
@pytest.mark.parametrize("capability", Capability)
def test_one_provider_takes_anothers_place_by_its_connection_alone(capability: Capability) -> None:
    bench = Bench()
    for name in (each for each in SAID if capability_of(each) is capability):
        observation = bench.make(bench.connect(name))
        assert observation.kind is ObservationKind.RESULT
        assert [len(server.asked) for server in bench.servers.values()].count(1) > 0
        assert len(bench.servers[name].asked) == 1


# ---- no vendor anywhere else


def harness() -> list[Path]:
    files = [file for file in MESH.rglob("*.py") if WEB not in file.parents]
    return [*files, *(ROOT / "functions").glob("*/*.py"), ROOT / "infra" / "topology.py"]


@pytest.mark.behaviour("web:no-vendor-tools")
def test_no_code_outside_of_the_package_knows_a_vendor() -> None:
    names = set(PROVIDERS) | {each.origin.removeprefix("https://") for each in PROVIDERS.values()}
    places = {file.relative_to(MESH).parts[0] for file in harness() if MESH in file.parents}
    assert {"engine", "tools", "control", "operator", "outbox", "storage"} <= places
    assert {
        (str(file), word)
        for file in harness()
        for word in words(tree(file))
        if any(name in word.lower() for name in names)
    } == set()


@pytest.mark.behaviour("web:no-vendor-tools")
def test_within_the_package_only_the_catalogue_and_the_adapter_know_it() -> None:
    for file in WEB.glob("*.py"):
        if file.stem == "catalogue":
            continue
        found = " ".join(words(tree(file))).lower()
        assert {name for name in PROVIDERS if name in found} <= {file.stem}, file


@pytest.mark.behaviour("web:no-vendor-tools")
def test_the_tools_of_all_packages_are_as_many_as_without_any_vendor() -> None:
    assert {name for name in packages.tool_names() if name.startswith("web_")} == {
        "web_search",
        "web_fetch",
    }
    assert not [
        tool for tool in packages.tool_names() for name in PROVIDERS if name in tool.lower()
    ]


# ---- the way out

PURE = ("__future__.", "typing.", "collections.abc.")


@pytest.mark.behaviour("web:hosted-apis-only", "web:adapters")
@EVERY
def test_an_adapter_reaches_the_world_by_the_exchange_alone(name: str) -> None:
    module = tree(WEB / f"{name}.py")
    for each in imports(module):
        assert each == "re" or each.startswith(("mesh.", *PURE)), each
        assert not each.startswith(("mesh.storage", "mesh.control")), each
        if each.startswith("mesh.security.egress"):
            assert each in {
                "mesh.security.egress.contract.Egress",
                "mesh.security.egress.contract.Reply",
            }
    handed_on = [
        ast.unparse(node.func)
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and any(isinstance(it, ast.Name) and it.id == "egress" for it in node.args)
    ]
    used = [node for node in ast.walk(module) if isinstance(node, ast.Name) and node.id == "egress"]
    assert len(handed_on) == len(used) == 2
    assert "Exchange" in handed_on


@pytest.mark.behaviour("web:hosted-apis-only")
def test_nothing_of_the_package_opens_a_connection_itself() -> None:
    for file in WEB.glob("*.py"):
        for each in imports(tree(file)):
            top = each.partition(".")[0]
            assert top not in {"socket", "ssl", "http", "httpx", "urllib", "h11", "requests"}, file


def pointed(name: str) -> Any:
    """An answer of search whose every field points somewhere."""
    module: Any = SAID[name].module
    more = {
        "thumbnail": {"src": "https://images.example/t.png", "original": "https://i.example/o"},
        "profile": {"img": "https://images.example/p.png", "url": "https://goats.example"},
        "images": ["https://images.example/1.png"],
        "extra_snippets": ["https://images.example/2.png"],
    }
    results = [module.result(n, url=f"https://host-{n}.example/page", **more) for n in range(10)]
    return module.found(*results, images=[{"image_url": "https://images.example/3.png"}])


@pytest.mark.behaviour("web:hosted-apis-only", "search:no-dereference", "fetch:two-origins")
def test_calls_of_all_four_are_one_request_each_to_the_origins_that_are_declared() -> None:
    bench = Bench()
    made = []
    for name in SAID:
        grant = bench.connect(name)
        if name in SEARCH:
            bench.servers[name].says(pointed(name))
        observation = bench.make(
            grant, **({"query": "goats"} if name in SEARCH else {"url": PAGE_URL})
        )
        assert observation.kind is ObservationKind.RESULT
        made.append(PROVIDERS[name].origin)
    assert ["/".join(call.url.split("/")[:3]) for call in bench.egress.calls] == made
    assert all(server.broken == [] for server in bench.servers.values())


@pytest.mark.behaviour("fetch:two-origins")
def test_reading_has_two_origins() -> None:
    assert {each.origin for each in PROVIDERS.values() if Capability.READ in each.capabilities} == {
        "https://api.firecrawl.dev",
        "https://api.cloudflare.com",
    }


@pytest.mark.behaviour("search:no-artifacts", "web:bounded")
@pytest.mark.parametrize("name", SEARCH)
def test_a_search_brings_text_alone_and_not_more_than_its_bound(name: str) -> None:
    bench = Bench()
    grant = bench.connect(name)
    bench.servers[name].says(pointed(name))
    observation = bench.make(grant, query="goats", limit=10)
    assert "images.example" not in observation.text
    for each in document(observation)["results"]:
        assert set(each) <= {"rank", "url", "title", "date", "excerpt", "truncated"}
    module: Any = SAID[name].module
    text = {"description": "x" * 30_000} if name == "brave" else {"snippet": "x" * 100_000}
    bench.servers[name].says(module.found(*(module.result(n, **text) for n in range(10))))
    longest = bench.make(grant, query="goats", limit=10)
    assert len(longest.text.encode()) <= SEARCH_OBSERVATION_BYTES_MAX
    assert len(document(longest)["results"]) == 10


@pytest.mark.behaviour("search:no-artifacts")
def test_an_observation_has_no_place_for_anything_but_text_and_addresses() -> None:
    assert {each.name: each.type for each in dataclasses.fields(Observation)} == {
        "kind": "ObservationKind",
        "text": "str",
        "provenance": "Mapping[str, str]",
        "sources": "tuple[str, ...]",
    }
    assert {each.type for each in dataclasses.fields(Hit)} == {"str", "str | None", "bool"}


# ---- what is loaded


def test_a_worker_loads_no_adapter_before_a_call_needs_it() -> None:
    found = loaded("turn_worker")
    assert "mesh.tools.web.handlers" in found
    assert not found & {f"mesh.tools.web.{name}" for name in (*PROVIDERS, "exchange", "cutting")}


def test_what_answers_webhooks_loads_no_tool() -> None:
    found = [it for it in loaded("generic_ingress") if it.startswith(("mesh.tools", "regex"))]
    assert found == []


def test_the_catalogue_and_the_handlers_load_no_adapter() -> None:
    for file in ("catalogue.py", "handlers.py", "contract.py", "failures.py"):
        found = imports(tree(WEB / file))
        assert not {each for each in found if any(name in each for name in PROVIDERS)}, file
