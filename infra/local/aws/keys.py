"""Owns the embedded KMS: keys, their states, and blobs that open only under their own context.

Refuses keys that are disabled or about to be deleted, another context, and another key's blob.
"""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from infra.local.aws.wire import Answer, AwsError, Json

PLAINTEXT_BYTES_MAX: Final = 4096
CONTEXT_BYTES_MAX: Final = 8192
ARN_PREFIX: Final = "arn:aws:kms:eu-west-1:123456789012:key/"

_ID_BYTES = 16
_NONCE_BYTES = 12
_DATA_KEY_BYTES = {"AES_128": 16, "AES_256": 32}


@dataclass(slots=True)
class _Key:
    """A key: its generations (the newest last) and its state, as KMS names states."""

    id: UUID
    generations: list[bytes] = field(repr=False)
    state: str = "Enabled"

    @property
    def arn(self) -> str:
        return f"{ARN_PREFIX}{self.id}"


class Kms:
    """Every key, behind a lock. `dice` makes key material: the system's, or seeded for a replay."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._lock = threading.Lock()
        self._keys: dict[UUID, _Key] = {}
        self._aliases: dict[str, _Key] = {}
        self._operations: dict[str, Callable[[Json], Json]] = {
            "Encrypt": self._encrypt,
            "Decrypt": self._decrypt,
            "GenerateDataKey": self._generate,
            "GenerateDataKeyWithoutPlaintext": self._generate_wrapped,
            "ReEncrypt": self._re_encrypt,
            "DescribeKey": self._describe,
            "DisableKey": self._disable,
            "EnableKey": self._enable,
            "ScheduleKeyDeletion": self._schedule_deletion,
            "CancelKeyDeletion": self._cancel_deletion,
            "RotateKeyOnDemand": self._rotate,
        }

    def create(self, alias: str) -> str:
        """Makes a key under `alias/<alias>` and answers its ARN."""
        name = alias if alias.startswith("alias/") else f"alias/{alias}"
        key = _Key(UUID(int=self._dice.getrandbits(128), version=4), [self._bytes(32)])
        self._keys[key.id] = self._aliases[name] = key
        return key.arn

    def call(self, operation: str, body: Json) -> Answer:
        """Carries out one operation; raises AwsError."""
        if operation not in self._operations:
            raise AwsError("UnknownOperationException", f"the embedded AWS has no {operation}")
        with self._lock:
            return Answer(self._operations[operation](body))

    def _bytes(self, length: int) -> bytes:
        return self._dice.getrandbits(length * 8).to_bytes(length, "big")

    def _find(self, name: str) -> _Key:
        if name in self._aliases:
            return self._aliases[name]
        alias = name.partition(":alias/")[2]
        if alias and f"alias/{alias}" in self._aliases:
            return self._aliases[f"alias/{alias}"]
        for key in self._keys.values():
            if name in {key.arn, str(key.id)}:
                return key
        raise AwsError("NotFoundException", "the key does not exist")

    def _usable(self, key: _Key) -> _Key:
        if key.state == "Disabled":
            raise AwsError("DisabledException", f"{key.arn} is disabled.")
        if key.state != "Enabled":
            raise AwsError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
        return key

    def _seal(self, key: _Key, plaintext: bytes, body: Json, context: str) -> str:
        nonce = self._bytes(_NONCE_BYTES)
        generation = len(key.generations) - 1
        bound = _associated(body.get(context))
        sealed = AESGCM(key.generations[generation]).encrypt(nonce, plaintext, bound)
        blob = key.id.bytes + generation.to_bytes(2, "big") + nonce + sealed
        return base64.b64encode(blob).decode()

    def _open(self, body: Json, key_field: str, context: str) -> tuple[_Key, bytes]:
        blob = base64.b64decode(body["CiphertextBlob"])
        head = _ID_BYTES + 2
        try:
            key = self._keys[UUID(bytes=blob[:_ID_BYTES])]
            material = key.generations[int.from_bytes(blob[_ID_BYTES:head], "big")]
        except (KeyError, IndexError, ValueError):
            raise AwsError("InvalidCiphertextException", "") from None
        if (asked := body.get(key_field)) is not None and self._find(asked) is not key:
            raise AwsError(
                "IncorrectKeyException",
                "The key ID in the request does not identify the key that made this ciphertext.",
            )
        self._usable(key)
        nonce, sealed = blob[head : head + _NONCE_BYTES], blob[head + _NONCE_BYTES :]
        try:
            return key, AESGCM(material).decrypt(nonce, sealed, _associated(body.get(context)))
        except (InvalidTag, ValueError):
            raise AwsError("InvalidCiphertextException", "") from None

    def _encrypt(self, body: Json) -> Json:
        key = self._usable(self._find(body["KeyId"]))
        plaintext = base64.b64decode(body["Plaintext"])
        if not 1 <= len(plaintext) <= PLAINTEXT_BYTES_MAX:
            raise AwsError(
                "ValidationException", "Member must have length between 1 and 4096: plaintext"
            )
        return {
            "CiphertextBlob": self._seal(key, plaintext, body, "EncryptionContext"),
            "KeyId": key.arn,
            "EncryptionAlgorithm": "SYMMETRIC_DEFAULT",
        }

    def _decrypt(self, body: Json) -> Json:
        key, plaintext = self._open(body, "KeyId", "EncryptionContext")
        return {
            "Plaintext": base64.b64encode(plaintext).decode(),
            "KeyId": key.arn,
            "EncryptionAlgorithm": "SYMMETRIC_DEFAULT",
        }

    def _generate(self, body: Json) -> Json:
        key = self._usable(self._find(body["KeyId"]))
        spec, length = body.get("KeySpec"), body.get("NumberOfBytes")
        if (spec is None) == (length is None):
            raise AwsError(
                "ValidationException", "Please specify either number of bytes or key spec."
            )
        plaintext = self._bytes(_DATA_KEY_BYTES[str(spec)] if length is None else int(length))
        return {
            "CiphertextBlob": self._seal(key, plaintext, body, "EncryptionContext"),
            "Plaintext": base64.b64encode(plaintext).decode(),
            "KeyId": key.arn,
        }

    def _generate_wrapped(self, body: Json) -> Json:
        return {name: value for name, value in self._generate(body).items() if name != "Plaintext"}

    def _re_encrypt(self, body: Json) -> Json:
        source, plaintext = self._open(body, "SourceKeyId", "SourceEncryptionContext")
        target = self._usable(self._find(body["DestinationKeyId"]))
        return {
            "CiphertextBlob": self._seal(target, plaintext, body, "DestinationEncryptionContext"),
            "SourceKeyId": source.arn,
            "KeyId": target.arn,
        }

    def _describe(self, body: Json) -> Json:
        key = self._find(body["KeyId"])
        enabled = key.state == "Enabled"
        return {
            "KeyMetadata": {
                "KeyId": str(key.id),
                "Arn": key.arn,
                "KeyState": key.state,
                "Enabled": enabled,
            }
        }

    def _disable(self, body: Json) -> Json:
        self._changeable(body).state = "Disabled"
        return {}

    def _enable(self, body: Json) -> Json:
        self._changeable(body).state = "Enabled"
        return {}

    def _changeable(self, body: Json) -> _Key:
        key = self._find(body["KeyId"])
        if key.state == "PendingDeletion":
            raise AwsError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
        return key

    def _schedule_deletion(self, body: Json) -> Json:
        key = self._changeable(body)
        key.state = "PendingDeletion"
        return {"KeyId": key.arn, "KeyState": key.state}

    def _cancel_deletion(self, body: Json) -> Json:
        key = self._find(body["KeyId"])
        key.state = "Disabled"
        return {"KeyId": key.arn}

    def _rotate(self, body: Json) -> Json:
        key = self._usable(self._find(body["KeyId"]))
        key.generations.append(self._bytes(32))
        return {"KeyId": key.arn}


def _associated(context: dict[str, str] | None) -> bytes:
    bound = json.dumps(context or {}, sort_keys=True).encode()
    if len(bound) > CONTEXT_BYTES_MAX:
        raise AwsError("ValidationException", "the encryption context is too long")
    return bound
