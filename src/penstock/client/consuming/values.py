"""From stored bytes to the value a body sees: opened where it was sealed, then deserialised."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.client.encryption import KEY_HEADER, Encryption, EncryptionError
from penstock.client.retry import headers as retry_headers
from penstock.client.serializers import Deserializer, SerializationError, deserializer_for

if TYPE_CHECKING:
    from penstock.client.message import Message, ValueReader


def value_reader(chosen: Deserializer, encryption: Encryption | None) -> "ValueReader | None":
    """None when the bytes are the value: then nothing is called per message."""
    deserialize = deserializer_for(chosen)
    if deserialize is None and encryption is None:
        return None

    def read(message: "Message", data: bytes) -> Any:
        if encryption is not None:
            data = opened(encryption, message, data)
        return data if deserialize is None else _deserialized(deserialize, message, data)

    return read


def opened(encryption: Encryption, message: "Message", data: bytes) -> bytes:
    key_id = message.header(KEY_HEADER)
    if key_id is None:
        if not encryption.migrating:
            raise EncryptionError(
                f"{message!r} is not encrypted; while a topic is moved over, Encryption(…, migrating=True) takes such"
            )
        return data
    return encryption.open(_home(message), message.key, key_id.decode("utf-8", "replace"), data)


def _home(message: "Message") -> str:
    """The topic a value was sealed for. A retry or dead-letter topic may hold those of its own source alone."""
    return retry_headers.home(message.topic, message.headers)


def _deserialized(deserialize: Callable[[bytes], Any], message: "Message", data: bytes) -> Any:
    try:
        return deserialize(data)
    except Exception as error:
        raise SerializationError(
            f"{message!r} cannot be deserialised ({type(error).__name__}: {error}); `raw_value` has its bytes"
        ) from error
