"""What holds for every payload, not only for the ones that somebody thought of."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings, strategies as st

from mesh.connectors.generic.payload import WHITE_SPACE, digest, parse
from mesh.kernel.errors import Invalid
from mesh.kernel.limits import FIELD_PROBLEMS_MAX
from mesh.kernel.strict_json import decode, well_formed
from mesh.records.message import BodyFormat, NormalizedMessage, Topology

# A busy machine is no failure.
unhurried = settings(deadline=None)

VISIBLE = st.characters(exclude_categories=("Cs", "Cc"))
NAMES = st.text(VISIBLE, min_size=1, max_size=40)
BODIES = st.text(VISIBLE | st.sampled_from("\t\n\r"), max_size=200).filter(
    lambda text: bool(text.strip(WHITE_SPACE))
)
MESSAGES = st.builds(
    NormalizedMessage,
    message_id=NAMES,
    conversation_key=NAMES,
    actor_id=NAMES,
    body=BODIES,
    body_format=st.sampled_from(BodyFormat),
    parent_id=st.none() | NAMES,
    display_name=st.none() | NAMES,
    topology=st.sampled_from(Topology),
    sent_at=st.none()
    | st.datetimes(timezones=st.timezones(no_cache=True)).map(
        lambda moment: moment.replace(microsecond=0, tzinfo=None).isoformat() + "+01:00"
    ),
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
KEYS = st.sampled_from(
    [*NormalizedMessage.__struct_fields__, "specversion", "type", "id", "source", "data", "time"]
) | st.text(max_size=10)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=8),
    max_leaves=20,
)
JSON_LIKE = st.text(st.sampled_from('{}[]:,"\\ \n-+.0123456789eEtruefalsnNaIiy\ud800u\u00e9'))


def refusal(raw: bytes, cloudevent: bool) -> Invalid | None:
    try:
        parse(raw, cloudevent)
    except Invalid as error:
        return error
    return None


def judged(raw: bytes, cloudevent: bool) -> None:
    error = refusal(raw, cloudevent)
    if error is not None:
        assert error.code in ("malformed_json", "invalid_payload")
        assert (error.code == "invalid_payload") == bool(error.fields)
        assert len(error.fields) <= FIELD_PROBLEMS_MAX


@unhurried
@given(DOCUMENTS, st.booleans(), st.booleans())
def test_any_document_is_taken_or_invalid(document: object, cloudevent: bool, plain: bool) -> None:
    text = json.dumps(document, ensure_ascii=plain)
    judged(text.encode("utf-8", "surrogatepass"), cloudevent)


@unhurried
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_taken_or_invalid(raw: bytes, cloudevent: bool) -> None:
    judged(raw, cloudevent)


@unhurried
@given(JSON_LIKE | DOCUMENTS.map(json.dumps))
def test_the_slow_reader_says_what_the_parser_says(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    slow = well_formed(text)
    try:
        decode(raw)
    except Invalid:
        # Beside what both read, `decode` refuses halves of surrogate pairs.
        assert not slow or "\ud800" in text or "\\u" in text
    else:
        assert slow


@unhurried
@given(MESSAGES, st.booleans())
def test_any_message_comes_back_as_it_was_sent(message: NormalizedMessage, plain: bool) -> None:
    raw = json.dumps(msgspec.to_builtins(message), ensure_ascii=plain).encode()
    assert parse(raw, False) == message


@unhurried
@given(MESSAGES)
def test_defaults_written_or_left_out_make_one_digest(message: NormalizedMessage) -> None:
    full = msgspec.to_builtins(message)
    defaults = {"body_format": "markdown", "topology": "direct"}
    short = {key: value for key, value in full.items() if value not in (None, defaults.get(key))}
    again = parse(json.dumps(short).encode(), False)
    assert digest(again) == digest(message)
    assert digest(msgspec.structs.replace(again, sent_at=None, display_name=None)) == digest(again)


@unhurried
@given(MESSAGES, MESSAGES)
def test_two_messages_share_a_digest_only_where_the_claim_looks_at_neither_difference(
    one: NormalizedMessage, other: NormalizedMessage
) -> None:
    claimed = [
        msgspec.structs.replace(message, sent_at=None, display_name=None)
        for message in (one, other)
    ]
    assert (digest(one) == digest(other)) == (claimed[0] == claimed[1])
