"""Owns the one form of every answer: the headers that all bear, and how a refusal is told.

Refuses to tell of an error more than its code and the words that were written for its reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from mesh.kernel.errors import Conflict, Failed, Invalid, MeshError, Refused
from mesh.operator.route import Answer

_RETRY_AFTER_S: Final = 1


def answered(answer: Answer, request_id: str) -> dict[str, Any]:
    body = answer.body
    if isinstance(body, BaseModel):
        text = json.dumps(body.model_dump(mode="json", by_alias=True), ensure_ascii=False)
    else:
        text = "" if body is None else json.dumps(body, ensure_ascii=False)
    return _response(answer.status, text, request_id, answer.headers)


def refusal(error: MeshError, request_id: str) -> dict[str, Any]:
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    headers: dict[str, str] = {}
    match error:
        case Invalid(fields=fields) if fields:
            told["fields"] = [{"path": f.path, "problem": f.problem} for f in fields]
        case Conflict(current_version=int(version)):
            told["current_version"] = version
        case Refused(retry_after_s=int(seconds)):
            headers["Retry-After"] = str(seconds)
        case Failed(code="unavailable"):
            headers["Retry-After"] = str(_RETRY_AFTER_S)
    told["request_id"] = request_id
    text = json.dumps({"error": told}, ensure_ascii=False)
    return _response(error.status, text, request_id, headers)


def _response(
    status: int, text: str, request_id: str, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    headers = {"Cache-Control": "no-store", "X-Request-Id": request_id, **(more or {})}
    if text:
        headers["Content-Type"] = "application/json"
    return {"statusCode": status, "headers": headers, "body": text, "isBase64Encoded": False}
