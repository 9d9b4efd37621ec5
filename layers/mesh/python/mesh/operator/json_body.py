"""Owns the reading of a request's body: one JSON document, with one reading.

Refuses what parsers disagree about: other encodings, a byte order mark, duplicate keys, NaN and
Infinity, lone surrogates, text after the value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from mesh.kernel import strict_json
from mesh.kernel.errors import Invalid
from mesh.kernel.limits import API_BODY_BYTES_MAX

_MEDIA_TYPE: Final = re.compile(
    r'[ \t]*application/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?',
    re.IGNORECASE | re.ASCII,
)


def bytes_of(event: Mapping[str, Any]) -> bytes:
    """The body as it was sent. Raises Invalid `malformed_request`, `body_too_large`."""
    text = event.get("body") or ""
    if event.get("isBase64Encoded") is True:
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            raise Invalid("malformed_request", "the request could not be read") from None
    else:
        raw = str(text).encode("utf-8", "surrogatepass")
    if len(raw) > API_BODY_BYTES_MAX:
        raise Invalid("body_too_large", f"a body has at most {API_BODY_BYTES_MAX} bytes")
    return raw


def check_media_type(headers: Mapping[str, str]) -> None:
    """Raises Invalid `unsupported_media_type` for anything but plain JSON in UTF-8."""
    if "content-encoding" in headers:
        raise Invalid("unsupported_media_type", "the body must have no content coding")
    if _MEDIA_TYPE.fullmatch(headers.get("content-type", "")) is None:
        raise Invalid("unsupported_media_type", "the content type must be application/json")


def decode(raw: bytes) -> object:
    """The value that `raw` holds. Raises Invalid (`malformed_json`; `invalid_payload` too deep)."""
    return strict_json.decode(raw, numbers=True)
