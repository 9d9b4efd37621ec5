"""What somebody else's API wrote is an object of bounded depth or nothing, and half a character
costs no more than itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mesh.kernel.errors import Invalid
from mesh.kernel.foreign_json import as_object, as_text, depth_ends, document, encoded
from mesh.kernel.strict_json import decode

DEEP = 100_000


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"a": 1, "b": null}', {"a": 1, "b": None}),
        (b" {}\n", {}),
        ('{"é": "山"}'.encode(), {"é": "山"}),
        (b'{"a": -1.5e2}', {"a": -150.0}),
    ],
)
def test_an_object_is_read_with_its_numbers(raw: bytes, found: dict[str, Any]) -> None:
    assert document(raw, 8) == found


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"5",
        b'"x"',
        b"[{}]",
        b"<html>",
        b"{",
        b"{}{}",
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"a": ' + b"[" * DEEP,
    ],
    ids=lambda raw: ascii(raw[:20]),
)
@pytest.mark.parametrize("mended", [False, True])
def test_what_is_no_object_is_none(raw: bytes, mended: bool) -> None:
    assert document(raw, 64, mended=mended) is None


def test_a_number_that_is_too_long_is_none_that_fits_a_field() -> None:
    found = document(b'{"a": ' + b"9" * 500_000 + b', "b": 1e999, "c": 18446744073709551615}', 8)
    assert found == {"a": math.inf, "b": math.inf, "c": 2**64 - 1}


# ---- half characters


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        (r"\ud800", "\ufffd"),
        (r"\uDFFFx", "\ufffdx"),
        (r"a\ud83d", "a\ufffd"),
        (r"\udc10\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\udc10", "\ufffd\U0001f410"),
        (r"\ud83d\udc10\udc10", "\U0001f410\ufffd"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\ud83d\n\udc10", "\ufffd\n\ufffd"),
        # what is whole, and a back-slash that is a character
        (r"\ud83d\udc10", "\U0001f410"),
        (r"\\ud800", r"\ud800"),
        (r"\\\\ud800", r"\\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\ufffd\uffff\u0000", "\ufffd\uffff\x00"),
        (r"\"\/\b", '"/\b'),
    ],
)
def test_half_a_character_is_mended_and_nothing_else(text: str, mended: str) -> None:
    raw = f'{{"a": "{text}", "b": 1}}'.encode()
    assert document(raw, 8, mended=True) == {"a": mended, "b": 1}
    if "\ufffd" in mended and r"\ufffd" not in text:
        assert document(raw, 8) is None
        with pytest.raises(Invalid):
            decode(raw)
    else:
        assert document(raw, 8) == {"a": mended, "b": 1}


def test_a_key_is_mended_as_well() -> None:
    assert document(rb'{"\ud800": 1}', 8, mended=True) == {"\ufffd": 1}


def test_mending_makes_no_json_of_what_is_none() -> None:
    for raw in (rb'{"a": "\ud80"}', rb'{"a": "\ud800}', rb'{"a": \ud800}', rb'{"a": "\x"}'):
        assert document(raw, 8, mended=True) is None


@given(st.text(st.characters() | st.sampled_from('\\"\ud83d\udc10\ud800'), max_size=30))
def test_a_mended_text_is_whole_and_as_long_as_it_was_meant(text: str) -> None:
    raw = json.dumps({"a": text}).encode()
    found = document(raw, 8, mended=True)
    assert found is not None
    # The two halves of a pair that stand beside each other are one character, however they came.
    assert found["a"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    found["a"].encode("utf-8")


# ---- depth, and what a value is


@pytest.mark.parametrize("levels", [1, 2, 5])
@pytest.mark.parametrize("inner", [{"a": 1}, {"a": None}, {}])
def test_a_value_may_be_as_deep_as_it_is_allowed_and_no_deeper(
    levels: int, inner: dict[str, Any]
) -> None:
    value: dict[str, Any] = inner
    for level in range(levels - 1):
        value = {"a": value} if level % 2 else {"a": [value], "b": 1}
    depth = 1 + sum(1 if level % 2 else 2 for level in range(levels - 1))
    assert depth_ends(value, depth)
    assert not depth_ends(value, depth - 1)
    raw = json.dumps(value).encode()
    assert document(raw, depth) == value
    assert document(raw, depth - 1) is None


@pytest.mark.parametrize("value", [None, 5, True, 1.5, "x", [], ["x"], b"x"], ids=repr)
def test_what_is_of_another_type_is_none_of_it(value: object) -> None:
    assert as_object(value) is None
    assert as_text(value) == (value if isinstance(value, str) else "")


def test_what_is_sent_is_compact_utf_8_without_numbers_that_json_lacks() -> None:
    assert encoded({"é": ["山", 1, None]}) == '{"é":["山",1,null]}'.encode()
    for number in (math.inf, math.nan):
        with pytest.raises(ValueError, match="JSON"):
            encoded({"a": number})
    with pytest.raises(ValueError, match="surrogates"):
        encoded({"a": "\ud800"})
