"""One message as the console prints it, wherever it was read from."""

from typing import TYPE_CHECKING, NamedTuple, cast

from penstock.client.message import Headers, headers_of

if TYPE_CHECKING:
    from confluent_kafka import Message


class ConsoleRow(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @classmethod
    def of(cls, message: "Message") -> "ConsoleRow":
        kind, timestamp_ms = message.timestamp()
        return cls(
            topic=message.topic() or "",
            partition=cast(int, message.partition()),
            offset=cast(int, message.offset()),
            timestamp_ms=timestamp_ms if kind else None,
            key=_raw(message.key()),
            value=_raw(message.value()),
            headers=headers_of(message),
        )


def _raw(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
