"""End-to-end encryption of values (SPEC M10).

Where the package cryptography is not installed, a stand-in with the same contract (nothing opens but with the same key,
nonce and bound data) takes its place, so that the envelope is tested everywhere.
"""

import hashlib
import hmac
import os
import sys
from importlib.util import find_spec

import pytest

from penstock.client import encryption as module
from penstock.client.consuming.values import value_reader
from penstock.client.encryption import KEY_HEADER, Encryption, EncryptionError, StaticKeys, UnknownKeyError
from penstock.client.message import Message


class StandIn:
    """As AESGCM: `encrypt(nonce, data, bound)`, and `decrypt` which raises when anything differs."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _stream(self, nonce: bytes, size: int) -> bytes:
        return hashlib.shake_256(self._key + nonce).digest(size)

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        hidden = bytes(a ^ b for a, b in zip(data, self._stream(nonce, len(data)), strict=True))
        return hidden + hmac.digest(self._key, nonce + hidden + b"|" + bound, "sha256")[:16]

    def decrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        hidden, tag = data[:-16], data[-16:]
        if not hmac.compare_digest(tag, hmac.digest(self._key, nonce + hidden + b"|" + bound, "sha256")[:16]):
            raise ValueError("tag")
        return bytes(a ^ b for a, b in zip(hidden, self._stream(nonce, len(hidden)), strict=True))


class Raw:
    """What librdkafka would hand out."""

    def __init__(self, topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        self._parts = (topic, key, value, headers)

    def topic(self) -> str:
        return self._parts[0]

    def key(self) -> bytes | None:
        return self._parts[1]

    def value(self) -> bytes:
        return self._parts[2]

    def headers(self) -> list[tuple[str, bytes]]:
        return self._parts[3]

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _cipher(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("cryptography") is None:
        monkeypatch.setattr(module, "_aead_class", lambda: StandIn)


OLD, NEW = os.urandom(32), os.urandom(32)


def test_a_sealed_value_opens_and_shows_nothing() -> None:
    encryption = Encryption(StaticKeys({"old": OLD, "new": NEW}))
    sealed, header = encryption.seal("orders", b"k", b"secret price")
    assert header == (KEY_HEADER, "new")
    assert b"secret" not in sealed
    assert encryption.open("orders", b"k", "new", sealed) == b"secret price"
    assert encryption.seal("orders", b"k", b"secret price")[0] != sealed


def test_keys_are_rotated_by_id() -> None:
    before = Encryption(StaticKeys({"old": OLD}))
    sealed, (_, key_id) = before.seal("orders", None, b"x")
    after = Encryption(StaticKeys({"old": OLD, "new": NEW}))
    assert after.open("orders", None, key_id, sealed) == b"x"
    assert after.seal("orders", None, b"x")[1][1] == "new"
    assert Encryption(StaticKeys({"old": OLD, "new": NEW}, current="old")).seal("t", None, b"")[1][1] == "old"


@pytest.mark.parametrize(
    ("topic", "key"), [("other", b"k"), ("orders", b"K"), ("orders", None), ("order", b"sk"), ("orders", b"")]
)
def test_a_value_belongs_to_its_topic_and_key(topic: str, key: bytes | None) -> None:
    encryption = Encryption(StaticKeys({"new": NEW}))
    sealed, _ = encryption.seal("orders", b"k", b"x")
    with pytest.raises(EncryptionError, match="does not open with key 'new'"):
        encryption.open(topic, key, "new", sealed)


def test_what_does_not_open_says_why() -> None:
    encryption = Encryption(StaticKeys({"new": NEW}))
    sealed, _ = encryption.seal("orders", None, b"x")
    with pytest.raises(UnknownKeyError, match="sealed with key 'lost'"):
        encryption.open("orders", None, "lost", sealed)
    with pytest.raises(EncryptionError, match="does not open"):
        Encryption(StaticKeys({"new": OLD})).open("orders", None, "new", sealed)
    for broken in (
        sealed[:-1],
        sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:],
        b"",
        b"plain",
        b"\2" + sealed[1:],
    ):
        with pytest.raises(EncryptionError):
            encryption.open("orders", None, "new", broken)
    for keys in ({}, {"a": b"short"}):
        with pytest.raises(EncryptionError):
            StaticKeys(keys)
    with pytest.raises(EncryptionError):
        StaticKeys({"a": NEW}, current="b")


def read(encryption: Encryption, topic: str, headers: list[tuple[str, bytes]], value: bytes) -> object:
    reader = value_reader("bytes", encryption)
    return Message(Raw(topic, b"k", value, headers), reader).value  # type: ignore[arg-type]


def test_retries_and_dead_letters_of_a_topic_open_and_those_of_others_do_not() -> None:
    encryption = Encryption(StaticKeys({"new": NEW}))
    sealed, (name, key_id) = encryption.seal("orders", b"k", b"x")
    headers = [(name, key_id.encode()), ("penstock-origin", b"orders/0/1")]
    for topic in ("orders", "orders.billing.retry", "orders.billing.dlq"):
        assert read(encryption, topic, headers, sealed) == b"x"
    for topic in ("refunds", "refunds.billing.dlq", "orders.copy"):
        with pytest.raises(EncryptionError):
            read(encryption, topic, headers, sealed)


def test_values_in_the_clear_are_refused_unless_a_topic_is_being_moved_over() -> None:
    """Else whoever may write to the topic slips in values of their own."""
    with pytest.raises(EncryptionError, match="is not encrypted"):
        read(Encryption(StaticKeys({"new": NEW})), "orders", [], b"plain")
    assert read(Encryption(StaticKeys({"new": NEW}), migrating=True), "orders", [], b"plain") == b"plain"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in ("cryptography", *(name for name in sys.modules if name.startswith("cryptography."))):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EncryptionError, match=r"pip install .*\[encryption\]'"):
        Encryption(StaticKeys({"new": NEW}))
