"""JSON with one reading: the parser and the slower reader that stands in where it gives up."""

from __future__ import annotations

import json

import pytest

from mesh.kernel.errors import Invalid
from mesh.kernel.strict_json import decode, well_formed

GOOD = [
    "{}",
    "[]",
    " \t\r\n0 \t\r\n",
    "-0",
    "1e999",
    "-1.5E-7",
    '"\\u0000\\/\\b"',
    '"\\ud83d\\uDE00"',
    '"\\\\ud800"',
    '"\ufffe"',
    '{"a":{"a":1},"b":[{"a":1},{"a":2}]}',
    '[true,false,null,"",{}]',
    "1" * 5000,
    "1." + "1" * 5000,
]
BAD = [
    "",
    " ",
    "{",
    "[",
    "]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1}",
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{,"a":1}',
    '{"a":1 "b":2}',
    '{"a":1]',
    "{a:1}",
    "{1:1}",
    "{[]:1}",
    "'a'",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "0x1",
    "--1",
    "٣",
    "NaN",
    "Infinity",
    "-Infinity",
    "[NaN]",
    "True",
    "nul",
    "{} x",
    "{}{}",
    "1 1",
    '{}"',
    "{}\x00",
    "{}\u00a0",
    "\u2028{}",
    "/**/{}",
    '"a',
    '"\t"',
    '"\n"',
    '"\x1f"',
    '"\\x41"',
    '"\\u12"',
    '"\\u+123"',
    '"\\u12_3"',
    '{"a":1,"a":2}',
    '{"a":1,"\\u0061":2}',
    '[{"b":{"a":1,"a":1}}]',
]
LONE = [
    '"\\ud800"',
    '"\\uDFFF"',
    '"\\udc00\\ud800"',
    '"\\ud800x"',
    '"\\ud800\\u0041"',
    '"\\ud800\\ud800\\udc00"',
    '"\\\\\\ud800"',
    '{"\\ud800":1}',
    '[[["\\udc00"]]]',
    '{"a":{"b":["\\ud800\\\\udc00"]}}',
]


@pytest.mark.parametrize("text", GOOD)
def test_both_readers_take_what_is_json(text: str) -> None:
    decode(text.encode())
    assert well_formed(text)


@pytest.mark.parametrize("text", BAD)
def test_both_readers_refuse_what_is_not_strict_json(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(text.encode())
    assert (caught.value.code, caught.value.status) == ("malformed_json", 400)
    assert not well_formed(text)


@pytest.mark.parametrize("text", LONE)
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(text.encode())
    assert caught.value.code == "malformed_json"


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        "{}".encode("utf-16"),
        "{}".encode("utf-16-be"),
        "{}".encode("utf-32"),
    ],
)
def test_other_encodings_and_marks_are_refused(raw: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        decode(raw)
    assert caught.value.code == "malformed_json"


DEPTH = 100_000
OPEN, CLOSE = "[" * DEPTH, "]" * DEPTH
OBJECTS = '{"a":' * 40_000 + "1" + "}" * 40_000


@pytest.mark.parametrize("text", [OPEN + CLOSE, f'{{"body":{OPEN}1{CLOSE}}}', OBJECTS])
def test_deep_json_is_invalid_rather_than_malformed(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(text.encode())
    assert (caught.value.code, caught.value.status) == ("invalid_payload", 422)


@pytest.mark.parametrize(
    "text",
    [
        OPEN,
        OPEN + CLOSE[1:],
        OPEN + CLOSE + "]",
        OPEN + CLOSE + " x",
        OPEN + "NaN" + CLOSE,
        OPEN + '{"a":1,"a":1}' + CLOSE,
        OPEN + '"\\ud800"' + CLOSE,
        OPEN + "}" + CLOSE,
        OBJECTS[:-1],
    ],
    ids=range(9),
)
def test_deep_text_that_is_not_strict_json_is_malformed(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(text.encode())
    assert caught.value.code == "malformed_json"


def test_what_was_escaped_comes_as_it_was_meant() -> None:
    assert decode(b'{"a":"\\ud83d\\ude00\\n","b":null}') == {"a": "\U0001f600\n", "b": None}


def test_every_character_that_json_allows_can_stand_in_a_key() -> None:
    for code in [*range(0x20, 0x180), 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        key = chr(code)
        text = json.dumps({key: 1}, ensure_ascii=False)
        assert decode(text.encode()) == {key: 0}
    for code in range(0x10000):
        if not 0xD800 <= code <= 0xDFFF:
            assert decode(b'{"\\u%04x":1}' % code) == {chr(code): 0}
