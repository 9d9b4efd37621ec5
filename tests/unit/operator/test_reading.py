"""What the operator API reads: bodies with one reading, times, cursors that nobody can forge."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mesh.kernel.errors import Invalid
from mesh.operator import cursors, json_body
from mesh.operator.shapes.base import milliseconds

KEY = b"k" * 32


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"{} {}",
        b"{'a':1}",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b"NaN",
        b"[Infinity]",
        b'"\xff"',
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
        b'{"\\udc00":1}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_parsers_disagree_about_is_no_json(raw: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        json_body.decode(raw)
    assert caught.value.code == "malformed_json"


def test_a_number_of_any_length_is_read_without_cost() -> None:
    assert json_body.decode(b'{"a":-12}') == {"a": -12}
    value = json_body.decode(b"[" + b"9" * 100_000 + b"]")
    assert value == [float("inf")]


def test_a_body_comes_as_text_or_as_base64() -> None:
    assert json_body.bytes_of({"body": "é"}) == "é".encode()
    encoded = base64.b64encode(b"{}").decode()
    assert json_body.bytes_of({"body": encoded, "isBase64Encoded": True}) == b"{}"
    assert json_body.bytes_of({}) == b""
    with pytest.raises(Invalid):
        json_body.bytes_of({"body": "%%", "isBase64Encoded": True})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01t01:00:00.5+01:00", 500),
        ("2026-11-30T05:42:35.123456789Z", 1_796_017_355_123),
    ],
)
def test_a_time_is_rfc_3339_with_its_offset(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


@pytest.mark.parametrize(
    "text", ["", "1796017355", "2026-11-30", "2026-11-30T05:42:35", "2026-13-30T05:42:35Z", "now"]
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        milliseconds(text)


@given(place=st.lists(st.one_of(st.integers(0, 2**40), st.text(max_size=40)), max_size=3))
def test_a_cursor_comes_back_as_its_place(place: list[str | int]) -> None:
    cursor = cursors.seal(KEY, "list", place)
    assert cursors.unseal(KEY, "list", cursor) == place
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(data=st.data())
def test_a_changed_cursor_is_refused(data: Any) -> None:
    cursor = cursors.seal(KEY, "list", [20_000, "01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    index = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_%é").filter(lambda c: c != cursor[index]))
    with pytest.raises(Invalid):
        cursors.unseal(KEY, "list", cursor[:index] + other + cursor[index + 1 :])


@pytest.mark.parametrize(("key", "binding"), [(b"o" * 32, "list"), (KEY, "other list")])
def test_a_cursor_of_another_key_or_list_is_refused(key: bytes, binding: str) -> None:
    cursor = cursors.seal(KEY, "list", [1])
    with pytest.raises(Invalid):
        cursors.unseal(key, binding, cursor)
