"""Owns how a secret is kept at rest: AES-256-GCM under a key and a context that both must fit.

Refuses to open anything in another context than it was sealed in, so that a row which is moved to
another owner, name or version stays shut. Key material never shows in a repr or an error.

A sealed blob is one version byte, a nonce of 12 bytes, then ciphertext and tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mesh.kernel.errors import Failed, Phase

if TYPE_CHECKING:
    from mesh.kernel.ids import Random

KEY_BYTES: Final = 32
_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class SecretContext(msgspec.Struct, frozen=True):
    """Whose secret it is, which one, and which version of it. None of this is secret."""

    owner_type: str
    """`agent_connector`, `agent`, `agent_mcp_binding` or `instance`."""
    owner_id: str
    name: str
    version: int

    def encode(self) -> bytes:
        """The context as associated data: each part after its length, so that no two meet."""
        out = bytearray(b"mesh secret" + _VERSION)
        for part in (self.owner_type, self.owner_id, self.name, str(self.version)):
            data = part.encode("utf-8")
            out += len(data).to_bytes(4, "big") + data
        return bytes(out)

    def encryption_context(self) -> dict[str, str]:
        """The same context in the form that a key service takes."""
        return {
            "owner_type": self.owner_type,
            "owner_id": self.owner_id,
            "name": self.name,
            "version": str(self.version),
        }


class SealingKey(Protocol):
    """A key that seals: whole for one secret, or derived for each context."""

    def key_for(self, context: SecretContext) -> bytes:
        """The 32 bytes that seal in `context`."""
        ...


class DataKey:
    """A key of 32 bytes for one secret, kept beside it wrapped.

    Raises ValueError on any other length.
    """

    __slots__ = ("_material",)

    def __init__(self, material: bytes) -> None:
        if len(material) != KEY_BYTES:
            raise ValueError("a sealing key has 32 bytes")
        self._material = material

    def key_for(self, context: SecretContext) -> bytes:  # noqa: ARG002 - the protocol has it
        """The key itself; the context is bound by the associated data alone."""
        return self._material

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class InstanceKey(DataKey):
    """A key of 32 bytes for many secrets: each context gets its own subkey (HKDF, RFC 5869).

    So opening costs the same for every install, known or not, and asks no key service.
    """

    __slots__ = ()

    def key_for(self, context: SecretContext) -> bytes:
        """The subkey of exactly this owner, name and version."""
        derive = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=context.encode())
        return derive.derive(self._material)


class KeyWrapper(Protocol):
    """The key service as the rest of the system sees it. `context` must be the same both ways."""

    def generate(self, context: dict[str, str]) -> tuple[bytes, bytes]:
        """A fresh key of 32 bytes: in the clear, and wrapped."""
        ...

    def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        """The key material in the clear. Raises Failed when it cannot be had."""
        ...


def seal(key: SealingKey, context: SecretContext, plaintext: bytes, random: Random) -> bytes:
    """`plaintext` sealed under `key` in `context`; 29 bytes longer than it."""
    nonce = random.bytes(_NONCE_BYTES)
    sealed = AESGCM(key.key_for(context)).encrypt(nonce, plaintext, context.encode())
    return _VERSION + nonce + sealed


def open_sealed(key: SealingKey, context: SecretContext, blob: bytes) -> bytes:
    """What `seal` was given. Raises Failed `secret_unopenable` for another key, context or blob."""
    nonce, sealed = blob[1 : 1 + _NONCE_BYTES], blob[1 + _NONCE_BYTES :]
    if blob[:1] != _VERSION or len(sealed) < _TAG_BYTES:
        raise _unopenable()
    try:
        return AESGCM(key.key_for(context)).decrypt(nonce, sealed, context.encode())
    except InvalidTag:
        # The cause says nothing more, and a chained traceback would hold the frames' locals.
        raise _unopenable() from None


def open_text(key: SealingKey, context: SecretContext, blob: bytes) -> str:
    """The text that was sealed. Raises Failed `secret_unopenable` as `open_sealed` does, and for
    what is no text."""
    opened = open_sealed(key, context, blob)
    try:
        return opened.decode()
    except UnicodeDecodeError:
        pass  # it holds what it could not read: what is raised within would carry that along
    raise _unopenable()


def _unopenable() -> Failed:
    return Failed("secret_unopenable", "a stored secret does not open", Phase.BEFORE)
