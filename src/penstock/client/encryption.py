"""End-to-end encryption of values: AES-256-GCM in the client, so that the queue stores what it cannot read.

A sealed value is one byte of format, 12 bytes of nonce, the ciphertext, 16 bytes of tag; the id of its key travels in
the header `penstock-key-id`. Topic and message key are bound in: a value copied to another topic or under another
key does not open. Keys, tags, labels and other headers stay readable, so partitioning and filtering still work.

Rotation: give the provider the new key as current and keep the old ones for reading. Nonces are random; NIST SP
800-38D allows 2^32 messages per key for those, so rotate well before.
"""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.client.errors import ClientError
from penstock.core.distribution import install

KEY_HEADER = "penstock-key-id"
KEY_BYTES = 32
_FORMAT = b"\x01"
_NONCE_BYTES = 12
_TAG_BYTES = 16


class EncryptionError(ClientError):
    """A value that cannot be sealed or opened."""


class UnknownKeyError(EncryptionError):
    """The provider has no key of the id that a message names."""


class KeyProvider(Protocol):
    """Where keys come from: a file, a vault, a key service. Called per message, so it should remember."""

    def current(self) -> tuple[str, bytes]:
        """Id and key (32 bytes) to seal with."""
        ...

    def key(self, key_id: str) -> bytes:
        """The key of an id; `KeyError` when there is none."""
        ...


class StaticKeys:
    """Keys held in memory, by id; `current` is the one to seal with (the last one given unless named)."""

    def __init__(self, keys: Mapping[str, bytes], current: str | None = None) -> None:
        if not keys:
            raise EncryptionError("no keys given: StaticKeys({'2026-01': os.urandom(32)})")
        for key_id, key in keys.items():
            if len(key) != KEY_BYTES:
                raise EncryptionError(f"key {key_id!r} has {len(key)} bytes: AES-256 takes {KEY_BYTES}")
        self._keys = dict(keys)
        self._current = list(keys)[-1] if current is None else current
        if self._current not in self._keys:
            raise EncryptionError(f"current key {current!r} is not among the keys")

    def current(self) -> tuple[str, bytes]:
        return self._current, self._keys[self._current]

    def key(self, key_id: str) -> bytes:
        return self._keys[key_id]


class Encryption:
    """Seals and opens values with the keys of a provider; give it to `Producer` and `Consumer`.

        encryption = Encryption(StaticKeys({"2026-01": key}))

    A consumer takes nothing that is not sealed: whoever may write to the topic could otherwise slip in values of
    their own. `migrating=True` takes both, for as long as a topic is moved over.
    """

    def __init__(self, keys: KeyProvider, *, migrating: bool = False) -> None:
        self._keys = keys
        self.migrating = migrating
        self._aead = _aead_class()
        self._ciphers: dict[bytes, Any] = {}

    def seal(self, topic: str, key: bytes | None, value: bytes) -> tuple[bytes, tuple[str, str]]:
        """The sealed value, and the header that names its key."""
        key_id, secret = self._keys.current()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher(secret).encrypt(nonce, value, _bound(topic, key, key_id))
        return _FORMAT + nonce + sealed, (KEY_HEADER, key_id)

    def open(self, topic: str, key: bytes | None, key_id: str, sealed: bytes) -> bytes:
        """The value again; `EncryptionError` says why it does not open."""
        if len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _FORMAT:
            raise EncryptionError(f"a message of {topic} names key {key_id!r} but is not a sealed value")
        try:
            secret = self._keys.key(key_id)
        except KeyError:
            raise UnknownKeyError(
                f"a message of {topic} is sealed with key {key_id!r}, which the key provider does not have"
            ) from None
        nonce, rest = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            opened: bytes = self._cipher(secret).decrypt(nonce, rest, _bound(topic, key, key_id))
        except Exception as error:
            raise EncryptionError(
                f"a message of {topic} does not open with key {key_id!r}: another key of that id sealed it, "
                "or the value was changed, moved to another topic or given another key"
            ) from error
        return opened

    def _cipher(self, secret: bytes) -> Any:
        cipher = self._ciphers.get(secret)
        if cipher is None:
            if len(secret) != KEY_BYTES:
                raise EncryptionError(f"the key provider gave {len(secret)} bytes: AES-256 takes {KEY_BYTES}")
            cipher = self._ciphers[secret] = self._aead(secret)
        return cipher


def _bound(topic: str, key: bytes | None, key_id: str) -> bytes:
    """What a sealed value belongs to. Lengths in front: no two different triples give the same bytes."""
    parts = (topic.encode(), key_id.encode(), b"" if key is None else key)
    lengths = b"".join(len(part).to_bytes(4, "big") for part in parts)
    return bytes([key is not None]) + lengths + b"".join(parts)


def _aead_class() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EncryptionError(
            f"encryption needs the package cryptography: {install('encryption')}"
        ) from error
    return AESGCM
