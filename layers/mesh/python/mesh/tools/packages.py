"""Owns first-party packages: a folder with `manifest.toml` and handlers, which ships inside Mesh.

Refuses a manifest that lies: an unknown replay class, a handler that is not there, a schema that is
none, a secret that is not declared. `make check` runs this module over every package and names the
line. Seed 000, "The boundary that already exists".
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from mesh.kernel.limits import TOOL_DESCRIPTION_CHARS_MAX, TOOL_NAME_CHARS_MAX
from mesh.records.connection import Capability
from mesh.tools.contract import Definition, Handler, Parts, Replay

ROOT: Final = Path(__file__).parent
MANIFEST: Final = "manifest.toml"
_NAME: Final = re.compile(rf"[a-z][a-z0-9_]{{0,{TOOL_NAME_CHARS_MAX - 1}}}\Z")
_SECRET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class _Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    summary: str
    secrets: tuple[str, ...] = ()


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    description: str
    replay: str
    handler: str
    input_schema: dict[str, Any]
    secrets: tuple[str, ...] = ()
    capability: str | None = None


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    package: _Package
    tool: tuple[_Tool, ...]


class ManifestError(Exception):
    """A manifest does not say what is there. `line` counts from 1."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose manifest was found to be true."""

    name: str
    summary: str
    definitions: tuple[Definition, ...]
    make: Callable[[Parts], Mapping[str, Handler]]
    """`handlers.handlers`: makes the handlers, by their names in the manifest."""
    handler_of: Mapping[str, str]
    """Tool → the name of its handler."""


def names() -> tuple[str, ...]:
    """The packages that ship, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in ROOT.glob(f"*/{MANIFEST}")))


def tool_names() -> tuple[str, ...]:
    """The tools of every package that ships, by name; reads the manifests alone."""
    found: list[str] = []
    for name in names():
        manifest = tomllib.loads((ROOT / name / MANIFEST).read_text(encoding="utf-8"))
        found += [tool["name"] for tool in manifest["tool"]]
    return tuple(sorted(found))


def load(name: str) -> Package:
    """The package of that name. Raises ManifestError."""
    module = importlib.import_module(f"mesh.tools.{name}.handlers")
    return read(ROOT / name / MANIFEST, vars(module))


def read(path: Path, module: Mapping[str, Any]) -> Package:
    """The package whose manifest is at `path` and whose handlers' module holds `module`.

    Raises ManifestError with the line of the first thing that is not so.
    """
    text = path.read_text(encoding="utf-8")
    lines = _Lines(path, text)
    try:
        manifest = msgspec.convert(tomllib.loads(text), _Manifest)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        raise ManifestError(path, int(found[1]) if found else 1, "is not TOML") from None
    except msgspec.ValidationError as error:
        raise lines.error_of(str(error)) from None
    if manifest.package.name != path.parent.name:
        raise lines.error("name", f"the folder is called {path.parent.name}")
    for secret in manifest.package.secrets:
        if _SECRET.match(secret) is None:
            raise lines.error("secrets", "a name that no vault takes")
    given = module.get("HANDLERS")
    handlers: Sequence[str] = given if isinstance(given, tuple) else ()
    seen: set[str] = set()
    definitions = []
    for number, tool in enumerate(manifest.tool):
        if tool.name in seen:
            raise lines.error("name", f"there are two tools {tool.name}", number)
        seen.add(tool.name)
        definitions.append(_definition(manifest.package, tool, number, lines, handlers))
    make = module.get("handlers")
    if not callable(make):
        raise ManifestError(path, 1, "handlers.py has no function `handlers`")
    return Package(
        name=manifest.package.name,
        summary=manifest.package.summary,
        definitions=tuple(definitions),
        make=make,
        handler_of={tool.name: tool.handler for tool in manifest.tool},
    )


def _definition(
    package: _Package, tool: _Tool, number: int, lines: _Lines, handlers: Sequence[str]
) -> Definition:
    if _NAME.match(tool.name) is None:
        raise lines.error("name", "a tool is named by a letter, then a-z, 0-9 and _", number)
    if not 0 < len(tool.description.strip()) <= TOOL_DESCRIPTION_CHARS_MAX:
        raise lines.error(
            "description", f"must have 1 to {TOOL_DESCRIPTION_CHARS_MAX} characters", number
        )
    if tool.replay not in list(Replay):
        known = ", ".join(Replay)
        raise lines.error(
            "replay", f"there is no class {tool.replay!r}; it is one of {known}", number
        )
    if tool.handler not in handlers:
        raise lines.error("handler", f"handlers.py names no handler {tool.handler!r}", number)
    for secret in tool.secrets:
        if secret not in package.secrets:
            raise lines.error("secrets", f"the package does not declare {secret!r}", number)
    if tool.capability is not None and tool.capability not in list(Capability):
        known = ", ".join(Capability)
        raise lines.error(
            "capability", f"there is no {tool.capability!r}; it is one of {known}", number
        )
    if tool.capability is not None and tool.replay != Replay.METERED:
        raise lines.error("replay", "a tool of a capability is metered", number)
    from mesh.tools.arguments import SchemaProblem, check_schema  # whoever wants names needs none

    try:
        check_schema(tool.input_schema)
    except SchemaProblem as problem:
        raise lines.error("input_schema", str(problem), number) from None
    return Definition(
        name=tool.name,
        description=tool.description.strip(),
        input_schema=tool.input_schema,
        replay=Replay(tool.replay),
        package=package.name,
        secrets=tool.secrets,
        capability=None if tool.capability is None else Capability(tool.capability),
    )


class _Lines:
    """Finds the line of a key, in the package's table or in a tool's."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def error(self, key: str, problem: str, tool: int | None = None) -> ManifestError:
        return ManifestError(self._path, self._line(key, tool), problem)

    def error_of(self, told: str) -> ManifestError:
        """What msgspec says (`… - at `$.tool[0].replay``), at its line."""
        tool = re.search(r"\$\.tool\[(\d+)\]", told)
        key = re.findall(r"[.`]([a-z_]+)`", told)
        number = int(tool[1]) if tool else None
        return ManifestError(self._path, self._line(key[-1] if key else "", number), told)

    def _line(self, key: str, tool: int | None) -> int:
        first, seen = 0, -1
        for number, line in enumerate(self._lines):
            if line.strip() == "[[tool]]":
                seen += 1
                if seen == (tool if tool is not None else -2):
                    first = number
        for number in range(first, len(self._lines)):
            line = self._lines[number].strip()
            if number > first and line == "[[tool]]":
                break
            if re.match(rf"(\[tool\.)?{re.escape(key)}\b", line):
                return number + 1
        return first + 1


def main() -> int:
    """Reads every package; 1 and a line on standard error for each that lies."""
    wrong = 0
    for name in names():
        try:
            load(name)
        except ManifestError as error:
            sys.stderr.write(f"{error}\n")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
