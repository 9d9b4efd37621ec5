"""Owns the calls to KMS: making, wrapping and opening data keys under an encryption context.

Refuses to keep anything: who may keep an opened key, and how long, is said where it is kept.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from mesh.kernel.errors import Failed, Phase

_OPENING: Final = frozenset({"decrypt", "re_encrypt"})
"""The calls that open what was wrapped."""


class KmsWrapper:
    """One KMS key. A wrapped key opens only with the context that it was wrapped with.

    `client` is a callable, so that the client is made when a call is first needed: a warm function
    needs none.
    """

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key

    def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
        """A fresh key of 32 bytes: in the clear, and wrapped. Raises Failed."""
        answer = self._call(
            "generate_data_key", KeyId=self._key, KeySpec="AES_256", EncryptionContext=context
        )
        return answer["Plaintext"], answer["CiphertextBlob"]

    def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        """The key material in the clear.

        Raises Failed: `secret_unopenable` for what opens with no key or not in this context, else
        `unavailable`. By which key it was wrapped, the newest or one before, KMS sees for itself;
        which keys a function may open with, its role says.
        """
        answer = self._call("decrypt", CiphertextBlob=wrapped, EncryptionContext=context)
        plaintext: bytes = answer["Plaintext"]
        return plaintext

    def wrapped_by(self, wrapped: bytes, context: dict[str, str]) -> str:
        """The ARN of the KMS key that opens `wrapped`; what it holds is dropped. Raises Failed."""
        arn: str = self._call("decrypt", CiphertextBlob=wrapped, EncryptionContext=context)["KeyId"]
        return arn

    def rewrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        """The same key material wrapped by this key, by the newest of its material; nothing leaves
        KMS in the clear.

        Raises Failed: `secret_unopenable` for what opens with no key or not in this context, else
        `unavailable`.
        """
        answer = self._call(
            "re_encrypt",
            CiphertextBlob=wrapped,
            SourceEncryptionContext=context,
            DestinationEncryptionContext=context,
            DestinationKeyId=self._key,
        )
        fresh: bytes = answer["CiphertextBlob"]
        return fresh

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        client: BaseClient = self._client()
        try:
            answer: dict[str, Any] = getattr(client, method)(**parameters)
        except (ClientError, BotoCoreError) as error:
            if method in _OPENING and _code(error) == "InvalidCiphertextException":
                raise Failed(
                    "secret_unopenable", "a wrapped key does not open", Phase.BEFORE
                ) from None
            raise Failed(
                "unavailable",
                "the key that opens secrets cannot be used; see the alarms",
                Phase.BEFORE,
            ) from None
        return answer


def _code(error: ClientError | BotoCoreError) -> str:
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else ""
