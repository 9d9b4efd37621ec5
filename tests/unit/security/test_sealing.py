"""A sealed secret opens with its key, in its context, unchanged; and in no other way."""

from __future__ import annotations

import hmac

import pytest
from msgspec import structs

from mesh.kernel.errors import Failed, Phase
from mesh.security.sealing import (
    DataKey,
    InstanceKey,
    SealingKey,
    SecretContext,
    open_sealed,
    open_text,
    seal,
)

CONTEXT = SecretContext("agent_connector", "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ST", "signing", 1)
MATERIAL = bytes(range(32))


class CountingRandom:
    """Bytes that never repeat, so that a nonce is told from the next."""

    def __init__(self) -> None:
        self._drawn = 0

    def bytes(self, count: int) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(count, "big")

    def uniform(self, low: float, high: float) -> float:
        return low


KEYS = pytest.mark.parametrize("key", [InstanceKey(MATERIAL), DataKey(MATERIAL)], ids=repr)


@KEYS
@pytest.mark.parametrize("plaintext", [b"", b"whsec_secret", bytes(70_000)], ids=len)
def test_what_was_sealed_opens(key: SealingKey, plaintext: bytes) -> None:
    blob = seal(key, CONTEXT, plaintext, CountingRandom())
    assert len(blob) == len(plaintext) + 29
    assert open_sealed(key, CONTEXT, blob) == plaintext


@KEYS
def test_a_text_opens_as_one_and_what_is_none_stays_shut_in_every_chain(key: SealingKey) -> None:
    assert open_text(key, CONTEXT, seal(key, CONTEXT, "é".encode(), CountingRandom())) == "é"
    with pytest.raises(Failed) as failure:
        open_text(key, CONTEXT, seal(key, CONTEXT, b"secret\xff", CountingRandom()))
    assert failure.value.code == "secret_unopenable"
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None


@pytest.mark.behaviour("secrets:connector-owner")
@KEYS
@pytest.mark.parametrize(
    "change",
    [{"owner_type": "agent"}, {"owner_id": "ins_other"}, {"name": "delivery_url"}, {"version": 2}],
    ids=str,
)
def test_a_secret_moved_to_another_context_stays_shut(
    key: SealingKey, change: dict[str, str]
) -> None:
    blob = seal(key, CONTEXT, b"secret", CountingRandom())
    moved = structs.replace(CONTEXT, **change)
    with pytest.raises(Failed) as failure:
        open_sealed(key, moved, blob)
    assert (failure.value.code, failure.value.status) == ("secret_unopenable", 500)
    assert failure.value.phase is Phase.BEFORE


@KEYS
def test_no_changed_byte_opens(key: SealingKey) -> None:
    blob = seal(key, CONTEXT, b"secret", CountingRandom())
    for index in range(len(blob)):
        changed = blob[:index] + bytes([blob[index] ^ 1]) + blob[index + 1 :]
        with pytest.raises(Failed):
            open_sealed(key, CONTEXT, changed)


@KEYS
@pytest.mark.parametrize("length", [0, 1, 12, 13, 28, 29])
def test_a_blob_cut_short_does_not_open(key: SealingKey, length: int) -> None:
    blob = seal(key, CONTEXT, b"secret", CountingRandom())
    with pytest.raises(Failed):
        open_sealed(key, CONTEXT, blob[:length])


def test_another_key_opens_nothing() -> None:
    blob = seal(InstanceKey(MATERIAL), CONTEXT, b"secret", CountingRandom())
    for key in (InstanceKey(bytes(32)), DataKey(MATERIAL)):
        with pytest.raises(Failed):
            open_sealed(key, CONTEXT, blob)


def test_the_same_secret_sealed_twice_differs() -> None:
    random = CountingRandom()
    first, second = (seal(InstanceKey(MATERIAL), CONTEXT, b"x", random) for _ in range(2))
    assert first != second


def test_no_two_contexts_have_the_same_associated_data() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")]
    encoded = {SecretContext("agent", owner, name, 1).encode() for owner, name in pairs}
    assert len(encoded) == len(pairs)


def test_a_subkey_is_hkdf_of_rfc_5869_over_the_context() -> None:
    extracted = hmac.digest(bytes(32), MATERIAL, "sha256")
    expanded = hmac.digest(extracted, CONTEXT.encode() + b"\x01", "sha256")
    assert InstanceKey(MATERIAL).key_for(CONTEXT) == expanded


def test_the_encryption_context_names_the_same_four_things() -> None:
    assert CONTEXT.encryption_context() == {
        "owner_type": "agent_connector",
        "owner_id": "ins_01JDXW5Y9ZK3V7Q2M8N4P6R0ST",
        "name": "signing",
        "version": "1",
    }


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_a_bug(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        InstanceKey(bytes(length))


def test_a_key_never_shows_itself() -> None:
    for key in (InstanceKey(MATERIAL), DataKey(MATERIAL)):
        for shown in (repr(key), str(key), f"{key}"):
            assert shown == f"{type(key).__name__}(…)"


def test_a_failure_says_nothing_of_the_secret() -> None:
    blob = seal(DataKey(MATERIAL), CONTEXT, b"canary", CountingRandom())
    with pytest.raises(Failed) as failure:
        open_sealed(DataKey(bytes(32)), CONTEXT, blob)
    assert str(failure.value) == "a stored secret does not open"
    assert failure.value.__suppress_context__
