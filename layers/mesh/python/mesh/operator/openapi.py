"""Owns the OpenAPI document: made of the routes and shapes that answer, so that it cannot say
otherwise.

Refuses to be written by hand: `python -m mesh.operator.openapi` prints it, and with `--check FILE`
fails where the file differs.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from mesh import __version__
from mesh.operator.api import RESOURCES
from mesh.operator.route import Needs, Route
from mesh.operator.shapes.base import Nothing

_REF: Final = "#/components/schemas/{model}"
_TEXTS: Final = {
    400: "Not JSON, or not readable",
    401: "No valid token",
    403: "The role does not allow it",
    404: "Not there, or not yours",
    409: "The state, the version, or an Idempotency-Key that was used differently",
    413: "The body is too large",
    415: "Not application/json",
    422: "The request is not valid",
    429: "Too many requests; see Retry-After",
    500: "A bug; the request id helps",
    503: "Try again; see Retry-After",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "request_id"],
            "properties": {
                "code": {"type": "string", "pattern": "^[a-z_]+$"},
                "message": {"type": "string", "description": "What to do"},
                "fields": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["path", "problem"],
                        "properties": {"path": {"type": "string"}, "problem": {"type": "string"}},
                    },
                },
                "current_version": {"type": "integer"},
                "request_id": {"type": "string"},
            },
        }
    },
}


def routes() -> list[Route[Any, Any]]:
    """Every route of every operator function."""
    return [
        route
        for resource in RESOURCES
        for route in import_module(f"mesh.operator.{resource}").ROUTES
    ]


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    found = routes()
    taken = {r.takes for r in found if r.method in ("POST", "PUT")}
    shown = {r.answers for r in found if r.answers is not None}
    named = {
        **_schemas(taken, "validation"),
        **_schemas(shown, "serialization"),
        "Error": _ERROR,
    }
    paths: dict[str, dict[str, Any]] = {}
    for route in found:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mesh operator API",
            "version": __version__,
            "description": "Times are RFC 3339 in UTC. Every answer bears X-Request-Id and"
            " Cache-Control: no-store. Unknown fields and query parameters are refused.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(named.items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An operator token: mop_…",
                }
            },
        },
    }


def _schemas(models: set[type[BaseModel]], mode: Any) -> dict[str, Any]:
    ordered = sorted(models, key=lambda model: model.__name__)
    _, made = models_json_schema([(model, mode) for model in ordered], ref_template=_REF)
    definitions: dict[str, Any] = made.get("$defs", {})
    return definitions


def _operation(route: Route[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "description": _role(route.needs),
        "parameters": _parameters(route),
        "responses": _responses(route),
        "security": [] if route.needs is Needs.NOTHING else [{"token": []}],
    }
    if route.method in ("POST", "PUT"):
        name = route.takes.__name__
        operation["requestBody"] = {
            "required": route.method == "PUT",
            "content": {"application/json": {"schema": {"$ref": _REF.format(model=name)}}},
        }
    return operation


def _role(needs: Needs) -> str:
    return "Needs no token." if needs is Needs.NOTHING else f"Needs the role {needs.name.lower()}."


def _parameters(route: Route[Any, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if route.method == "GET" and route.takes is not Nothing:
        schema = route.takes.model_json_schema(ref_template=_REF)
        inner = schema.get("$defs", {})
        required = schema.get("required", [])
        found += [
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": _inlined(what, inner),
            }
            for name, what in schema.get("properties", {}).items()
        ]
    if route.mints:
        found.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": True,
                "schema": {"type": "string", "minLength": 1, "maxLength": 128},
            }
        )
    return found


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A query's schema with its references written out: they are small, and named nowhere else."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items()}


def _responses(route: Route[Any, Any]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done"}
    if route.answers is not None:
        ref = {"$ref": _REF.format(model=route.answers.__name__)}
        success["content"] = {"application/json": {"schema": ref}}
    elif route.status != 204:
        success["content"] = {"application/json": {"schema": {"type": "object"}}}
    error = {
        "content": {"application/json": {"schema": {"$ref": _REF.format(model="Error")}}},
    }
    return {
        str(route.status): success,
        **{str(s): {"description": _TEXTS[s], **error} for s in _refusals(route)},
    }


def _refusals(route: Route[Any, Any]) -> list[int]:
    """The statuses that the route may refuse with."""
    if route.needs is Needs.NOTHING:
        return [422, 500]
    found = [401, 403, 404, 422, 429, 500, 503]
    if route.method in ("POST", "PUT"):
        found += [400, 409, 413, 415]
    elif route.method == "DELETE":
        found.append(409)
    return sorted(found)


def text() -> str:
    """The document as the repository keeps it."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Prints the document, or compares it: 1 when the file differs."""
    match arguments:
        case []:
            sys.stdout.write(text())
            return 0
        case ["--check", path]:
            file = Path(path)
            if file.is_file() and file.read_text(encoding="utf-8") == text():
                return 0
            sys.stderr.write(
                f"{path} is out of date; write it anew: python -m mesh.operator.openapi > {path}\n"
            )
            return 1
        case _:
            sys.stderr.write("usage: python -m mesh.operator.openapi [--check FILE]\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
