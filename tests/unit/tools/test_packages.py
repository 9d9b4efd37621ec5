"""Every package that ships says what is there; a manifest that lies is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.tools import packages
from mesh.tools.contract import Replay
from mesh.tools.packages import ManifestError

GOOD = """[package]
name = "thing"
summary = "Does a thing"
secrets = ["token"]

[[tool]]
name = "thing_do"
replay = "effect"
handler = "do"
description = "Does it."
secrets = ["token"]

[tool.input_schema]
type = "object"
additionalProperties = false

[[tool]]
name = "thing_see"
replay = "observe"
handler = "see"
description = "Sees it."

[tool.input_schema]
type = "object"
additionalProperties = false
"""
MODULE = {"HANDLERS": ("do", "see"), "handlers": dict}


def read(folder: Path, text: str, module: dict[str, object] = MODULE) -> packages.Package:
    path = folder / "thing" / "manifest.toml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return packages.read(path, module)


@pytest.mark.behaviour("packages:form")
def test_the_packages_that_ship_are_true() -> None:
    assert packages.names() == ("conversation_search", "note", "web")
    replay = {}
    for name in packages.names():
        for definition in packages.load(name).definitions:
            replay[definition.name] = definition.replay
            assert definition.package == name
    assert replay == {
        "conversation_search": Replay.OBSERVE,
        "note": Replay.EFFECT,
        "web_search": Replay.METERED,
        "web_fetch": Replay.METERED,
    }
    assert packages.main() == 0


def test_a_true_manifest_is_read(tmp_path: Path) -> None:
    package = read(tmp_path, GOOD)
    assert [each.name for each in package.definitions] == ["thing_do", "thing_see"]
    assert package.handler_of == {"thing_do": "do", "thing_see": "see"}
    assert package.definitions[0].secrets == ("token",)


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ('replay = "effect"', 'replay = "idempotent"', 8, "there is no class 'idempotent'"),
        ('handler = "see"', 'handler = "look"', 20, "names no handler 'look'"),
        (
            'secrets = ["token"]\n\n[tool',
            'secrets = ["key"]\n\n[tool',
            11,
            "does not declare 'key'",
        ),
        ('description = "Sees it."', 'description = " "', 21, "must have 1 to"),
        ('name = "thing_see"', 'name = "thing_do"', 18, "two tools"),
        ('name = "thing_see"', 'name = "Thing"', 18, "is named by"),
        ('name = "thing"', 'name = "other"', 2, "the folder is called thing"),
        (
            "additionalProperties = false\n\n",
            "additionalProperties = true\n\n",
            13,
            "additionalProperties",
        ),
        ('replay = "observe"', "replay = 3", 19, "Expected `str`"),
        ('replay = "observe"\n', "", 17, "missing required field `replay`"),
        ('replay = "observe"', 'replay = "observe"\nexcuse = "none"', 20, "unknown field `excuse`"),
        ("[[tool]]", "[[tool]", 6, "is not TOML"),
    ],
)
def test_a_lie_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, word: str
) -> None:
    assert old in GOOD
    with pytest.raises(ManifestError, match=":") as told:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert (told.value.line, word in told.value.problem) == (line, True), str(told.value)


def test_handlers_that_nobody_can_make_are_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no function `handlers`"):
        read(tmp_path, GOOD, {"HANDLERS": ("do", "see")})
