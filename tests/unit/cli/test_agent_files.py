"""`mesh agent export` and `apply`: an agent goes from one instance to another, and nothing that
binds goes with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from tests.fakes.line import GatewayTransport, Line
from tests.fakes.operators import Api, admin, minted
from tests.fakes.system import URL, System


class Instances:
    """Two instances, and the line to each."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.folder = capsys, tmp_path
        self.here, self.there = self.line(), self.line()
        self.file = tmp_path / "ada.json"

    def line(self) -> Line:
        return Line(admin(System()), self.folder, self.capsys)

    def settle_in(self) -> None:
        """An agent with settings of its own, and connectors two of which bear one name."""
        api = self.here.api
        body = {
            "name": "Ada",
            "handle": "ada-l",
            "instructions": "Be brief.\nBe kind. ✓",
            "model": {"kind": "openai", "name": "m", "base_url": "https://models.example.com/v1"},
            "limits": {"steps": 7, "turns_per_day": 100},
            "version": 1,
        }
        api.ok("PUT", "/api/agents/ada", body)
        for number in range(3):
            connector = {
                "kind": "generic",
                "name": "Support" if number < 2 else "Sales",
                "delivery_url": URL if number == 0 else None,
                "allow_hosts": ["*.example", "receiver.example"] if number == 0 else [],
                "engagement": {"policy": "always", "deny_actors": [f"u-{number}"]},
                "caps": {"waiting": 5 + number},
                "failure_replies": number == 1,
            }
            api.system.clock.forward(1)
            self.secret = api.ok("POST", "/api/agents/ada/connectors", connector)["secret"]


@pytest.fixture
def two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Instances:
    return Instances(tmp_path, capsys)


def exported(line: Line, slug: str = "ada") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(line.ok("agent", "export", slug))
    return document


def test_what_is_exported_and_applied_elsewhere_is_exported_there_as_it_was(two: Instances) -> None:
    two.settle_in()
    two.here.ok("agent", "export", "ada", "--output", str(two.file))
    assert two.file.stat().st_mode & 0o777 == 0o600
    out = two.there.ok("agent", "apply", str(two.file))
    assert out.count("whsec_") == 3
    assert "--delivery-url URL\n    # it was https://receiver.example" in out
    assert max(map(len, out.partition("the secret above")[2].splitlines())) <= 80
    connectors = two.there.api.ok("GET", "/api/agents/ada/connectors")["items"]
    assert {each["state"] for each in connectors} == {"disabled"}
    two.there.ok("connector", "update", connectors[0]["install_id"], "--delivery-url", URL)
    assert exported(two.there) == exported(two.here)
    assert two.there.ok("agent", "apply", str(two.file)) == f"ada matches {two.file}\n"
    # And under another slug beside it.
    two.there.ok("agent", "apply", str(two.file), "--slug", "eve")
    assert exported(two.there, "eve")["agent"] == exported(two.here)["agent"] | {"slug": "eve"}


def test_no_secret_key_or_id_is_in_the_file(two: Instances) -> None:
    two.settle_in()
    two.here.api.ok("PUT", "/api/agents/ada/model-key", {"value": "canary-model-key"})
    text = two.here.ok("agent", "export", "ada")
    assert json.loads(text)["model_key_present"] is True
    for forbidden in ("whsec_", "canary", "ins_", "agt_", URL, two.secret):
        assert forbidden not in text
    two.file.write_text(text)
    assert "mesh agent update ada --model-key-stdin" in two.there.ok(
        "agent", "apply", str(two.file)
    )


def test_a_plan_names_what_would_change_and_changes_nothing(two: Instances) -> None:
    two.settle_in()
    document = exported(two.here)
    document["agent"]["limits"]["steps"] = 9
    document["agent"]["instructions"] = "Be long."
    document["connectors"][1]["caps"]["waiting"] = 50
    document["connectors"].append({"kind": "generic", "name": "New"})
    two.file.write_text(json.dumps(document))
    before = exported(two.here)
    out = two.here.ok("agent", "apply", str(two.file), "--dry-run")
    assert out.splitlines() == [
        "update agent ada at version 2: instructions, limits.steps",
        "update connector Support at version 1: caps.waiting",
        "create connector New",
    ]
    assert exported(two.here) == before
    told = json.loads(two.here.ok("agent", "apply", str(two.file), "--dry-run", "--json"))
    assert (told["done"], len(told["left"])) == ([], 3)

    told = json.loads(two.here.ok("agent", "apply", str(two.file), "--json"))
    assert (len(told["done"]), told["left"], told["stopped"]) == (3, [], None)
    assert told["done"][2]["secret"].startswith("whsec_")
    after = exported(two.here)
    assert after["agent"]["limits"]["steps"] == 9
    assert [each["caps"]["waiting"] for each in after["connectors"]] == [5, 50, 7, 100]
    assert after["connectors"][0]["delivery_url_shown"] is not None


def test_a_connector_that_the_file_does_not_name_is_left_alone(two: Instances) -> None:
    two.settle_in()
    document = exported(two.here)
    del document["connectors"][2]
    two.file.write_text(json.dumps(document))
    assert two.here.ok("agent", "apply", str(two.file)) == f"ada matches {two.file}\n"
    assert len(exported(two.here)["connectors"]) == 3


class Failing(GatewayTransport):
    """Answers 503 to the n-th change from now, once."""

    left = 3

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            Failing.left -= 1
            if Failing.left == 0:
                error = {"code": "unavailable", "message": "the table is busy", "request_id": "r"}
                return httpx.Response(503, json={"error": error})
        return super().handle_request(request)


@pytest.mark.parametrize("as_json", [False, True])
def test_where_a_step_fails_what_was_minted_is_told_and_the_same_line_goes_on(
    two: Instances, as_json: bool
) -> None:
    two.settle_in()
    two.here.ok("agent", "export", "ada", "--output", str(two.file))
    Failing.left = 3
    two.there.transport = Failing
    code, out, err = two.there("agent", "apply", str(two.file), *(["--json"] if as_json else []))
    assert code == 3
    assert "stopped at step 3 of 4 (create connector Support)" in err
    assert out.count("whsec_") == 1
    if as_json:
        assert json.loads(out)["left"] == ["create connector Support", "create connector Sales"]
    out = two.there.ok("agent", "apply", str(two.file))
    assert out.count("whsec_") == 2
    shown = exported(two.there)["connectors"]
    assert [each["name"] for each in shown] == ["Support", "Support", "Sales"]


class Meanwhile(GatewayTransport):
    """Somebody else applies the same file in the moment before the first connector is made."""

    act: ClassVar[Callable[[], object] | None] = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        act, made = Meanwhile.act, request.url.path.endswith("/connectors")
        if act is not None and made and request.method == "POST":
            Meanwhile.act = None
            act()
        return super().handle_request(request)


def test_two_who_apply_one_file_at_once_do_not_both_make_its_connectors(two: Instances) -> None:
    two.settle_in()
    two.here.ok("agent", "export", "ada", "--output", str(two.file))
    other = Line(two.there.api, two.folder, two.capsys)
    Meanwhile.act = lambda: other.ok("agent", "apply", str(two.file))
    two.there.transport = Meanwhile
    code, _, err = two.there("agent", "apply", str(two.file))
    assert code == 1
    assert "the same command goes on" in err
    assert two.there.ok("agent", "apply", str(two.file)) == f"ada matches {two.file}\n"
    assert len(exported(two.there)["connectors"]) == 3


def test_an_operator_who_may_not_is_told_at_which_step(two: Instances) -> None:
    two.settle_in()
    two.here.ok("agent", "export", "ada", "--output", str(two.file))
    operator = Line(minted(two.there.api, "operator", ["ada"]), two.folder, two.capsys)
    code, _, err = operator("agent", "apply", str(two.file))
    assert code == 1
    assert "stopped at step 1 of 4" in err
    assert "only an admin sets a model's base_url" in err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "is of version 2, and this command knows 1"),
        ({"format": "other"}, "is no agent's file"),
        ({"secrets": []}, "unknown field `secrets`"),
        ({"agent": {"slug": "ada", "agent_id": "agt_1"}}, "field `agent_id` - at `$.agent`"),
        ({"agent": {"name": "x"}}, "missing required field `slug`"),
        ({"connectors": [{"name": "x", "secret": "y"}]}, "field `secret` - at `$.connectors[0]`"),
        ({"web_access": []}, "at `$.web_access`"),
        ({"web_access": {"search": {}}}, "missing required field `mode`"),
        ({"web_access": {"read": {"mode": "custom", "api_key": "y"}}}, "unknown field `api_key`"),
        ({"connectors": [{"kind": "generic"}]}, "missing required field `name`"),
        ({"connectors": {}}, "at `$.connectors`"),
        ({"tools": {"..": False}}, "a name that cannot be: '..'"),
        ({"agent": {"slug": "ada", "model": "m"}}, "at `$.agent.model`"),
        ({"agent": {"slug": "ada", "model": None}}, "at `$.agent.model`"),
        ({"agent": {"slug": "ada", "limits": [1]}}, "at `$.agent.limits`"),
        ({"agent": {"slug": "ada", "retention_days": float("inf")}}, "a number that is none"),
        ({"agent": {"slug": "ada", "name": "\ud800"}}, "holds half of a character"),
        ({"connectors": [{"name": "x", "engagement": "always"}]}, "`$.connectors[0].engagement`"),
        ({"connectors": [{"name": "x", "caps": 3}]}, "at `$.connectors[0].caps`"),
    ],
)
def test_a_file_of_another_form_is_refused_before_anything_is_asked(
    two: Instances, change: dict[str, Any], told: str
) -> None:
    two.file.write_text(json.dumps(exported(two.here) | change))
    code, _, err = two.here("agent", "apply", str(two.file))
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


AS_ANYTHING: tuple[Any, ...] = (None, True, 3, -1.5, "", "x", [], [1], [{}], {}, {"x": 1})


def test_no_type_of_any_setting_stops_it_without_a_word(two: Instances) -> None:
    """What is not judged in the file is the API's to refuse, at a step that is told."""
    two.settle_in()
    document = exported(two.here)
    connector = document["connectors"][0]
    places: list[tuple[dict[str, Any], str]] = [
        *((document, name) for name in document),
        *((document["agent"], name) for name in document["agent"]),
        *((document["agent"]["model"], name) for name in document["agent"]["model"]),
        *((connector, name) for name in connector),
        *((connector["engagement"], name) for name in connector["engagement"]),
    ]
    for within, name in places:
        before = within[name]
        for value in AS_ANYTHING:
            within[name] = value
            two.file.write_text(json.dumps(document))
            code, _, err = two.here("agent", "apply", str(two.file))
            assert (code in (0, 1, 2), err.count("\n")) == (True, int(code != 0)), (name, value)
        within[name] = before


def test_what_the_file_shows_of_an_address_does_not_act_on_a_terminal(two: Instances) -> None:
    document = exported(two.here)
    shown = "https://x.example\nmesh agent delete ada"
    document["connectors"] = [{"kind": "generic", "name": "a\x1b[2J", "delivery_url_shown": shown}]
    two.file.write_text(json.dumps(document))
    assert "\x1b" not in two.there.ok("agent", "apply", str(two.file), "--dry-run")
    document["connectors"][0]["name"] = "a"
    two.file.write_text(json.dumps(document))
    out = two.there.ok("agent", "apply", str(two.file))
    assert "# it was https://x.example\\nmesh agent delete ada\n" in out


def test_a_file_that_is_nested_without_end_is_refused_in_one_line(two: Instances) -> None:
    deep = json.dumps(exported(two.here)).replace(
        '"connectors": [', '"connectors": [' + "[" * 10**6
    )
    two.file.write_text(deep)
    code, _, err = two.here("agent", "apply", str(two.file))
    assert (code, err.count("\n")) == (2, 1)


def test_what_is_no_file_or_no_json_is_refused_in_one_line(two: Instances) -> None:
    assert two.here("agent", "apply", str(two.folder / "none"))[0] == 2
    two.file.write_text("[")
    assert "is no JSON" in two.here("agent", "apply", str(two.file))[2]


# ---- conversations


def talked(line: Line, rooms: int, messages: int) -> Iterator[str]:
    system = line.api.system
    made = system.make_install()
    for room in range(rooms):
        for number in range(messages):
            text = f"hello {room}.{number}"
            system.say(made, text, f"m-{room}-{number}", conversation_key=f"room-{room}")
            yield text
        system.settle()
    system.run(5)


def test_every_message_of_every_conversation_is_a_line(two: Instances) -> None:
    said = set(talked(two.here, rooms=3, messages=2))
    target = two.folder / "said.jsonl"
    out = two.here.ok("agent", "export", "ada", "--conversations", str(target), "--json")
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert json.loads(out) == {"file": str(target), "messages": len(lines)}
    assert {line["body"] for line in lines if line["role"] == "utterance"} == said
    assert sum(line["role"] == "reply" for line in lines) == len(said)
    assert {line["conversation_key"] for line in lines} == {"room-0", "room-1", "room-2"}
    assert target.stat().st_mode & 0o777 == 0o600
    assert two.here.ok("agent", "export", "ada", "--conversations", "-") == target.read_text()
    assert sorted(path.name for path in two.folder.iterdir()) == ["said.jsonl"]


class Broken(GatewayTransport):
    """Breaks at the first page of messages."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/messages"):
            raise httpx.ReadError("the connection broke")
        return super().handle_request(request)


def test_an_export_that_breaks_leaves_no_half_of_a_file(two: Instances) -> None:
    list(talked(two.here, rooms=1, messages=1))
    two.here.transport = Broken
    target = two.folder / "said.jsonl"
    target.write_text("of yesterday")
    code, _, err = two.here("agent", "export", "ada", "--conversations", str(target))
    assert code == 3
    assert "broke" in err
    assert [path.read_text() for path in two.folder.iterdir()] == ["of yesterday"]


def test_settings_and_conversations_are_asked_for_apart(two: Instances) -> None:
    line: Line = two.here
    code, _, _ = line("agent", "export", "ada", "--output", "x", "--conversations", "-")
    assert code == 2
    api: Api = line.api
    assert api.system.rows("AUDIT") == []


def test_the_tools_that_an_agent_may_use_go_with_it_and_its_notes_do_not(two: Instances) -> None:
    two.here.ok("tool", "disable", "note", "--agent", "ada")
    document = exported(two.here)
    of_the_web = {"web_fetch": True, "web_search": True}
    assert document["tools"] == {"conversation_search": True, "note": False, **of_the_web}
    assert "notes" not in document
    two.file.write_text(json.dumps(document))
    out = two.there.ok("agent", "apply", str(two.file), "--slug", "eve", "--dry-run")
    assert out.splitlines() == ["create agent eve", "update tool note at version 1: enabled"]
    two.there.ok("agent", "apply", str(two.file), "--slug", "eve")
    assert exported(two.there, "eve")["tools"] == document["tools"]
    two.file.write_text(json.dumps(document | {"tools": {"note": True, "of_later": False}}))
    two.there.ok("agent", "apply", str(two.file), "--slug", "eve")
    assert exported(two.there, "eve")["tools"]["note"] is True
    del document["tools"]
    two.file.write_text(json.dumps(document))
    assert two.there.ok("agent", "apply", str(two.file), "--slug", "eve").startswith("eve matches")


def test_a_tool_that_the_other_instance_does_not_have_stops_where_it_is_told(
    two: Instances,
) -> None:
    document = exported(two.here) | {"tools": {"of_later": True}}
    two.file.write_text(json.dumps(document))
    code, _, err = two.there("agent", "apply", str(two.file))
    assert (code, len(err.splitlines())) == (1, 1)
    assert "update tool of_later at version 0: enabled" in err
    two.file.write_text(json.dumps(document | {"tools": {"note": "yes"}}))
    code, _, err = two.there("agent", "apply", str(two.file))
    assert (code, "`$.tools[...]`" in err) == (2, True)
