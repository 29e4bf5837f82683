"""A message as the consumer sees it. Everything but its place is worked out when it is asked for."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.client import tags
from penstock.client.retry import headers as retry_headers

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

Headers = tuple[tuple[str, bytes | None], ...]
ValueReader = Callable[["Message", bytes], Any]

ID_HEADER = "penstock-id"

logger = logging.getLogger("penstock.client")

# Called from C, which always looks whether the binding left an error behind beside its answer. A call that the
# interpreter has made fast does not, and the error came up anywhere later.
_asked_for_headers: Callable[["RawMessage"], Any] = methodcaller("headers")


def headers_of(raw: "RawMessage") -> Headers:
    """librdkafka's binding gives none of them when the name of one cannot be text: any client can write such a one,
    and whoever reads the message must get past it."""
    try:
        return tuple(_asked_for_headers(raw) or ())
    except (SystemError, UnicodeDecodeError):
        raw.set_headers([])  # it would give the broken list the next time, and crash
        _warn(raw.topic())
        return ()


@lru_cache(maxsize=100)
def _warn(topic: str | None) -> None:
    logger.warning("headers in %s are left out: one has a name that is not UTF-8 (this is said once)", topic)


class Origin(NamedTuple):
    """Where a message was first stored."""

    topic: str
    partition: int
    offset: int


class Retries(Protocol):
    """Who knows how often a message failed: its headers alone do not, where it is tried again in its place."""

    def attempt(self, message: "Message") -> int: ...


class Message:
    """One message. `value` is what the consumer's deserializer makes of it, bytes by default."""

    __slots__ = ("_raw", "_read", "_retries")

    def __init__(self, raw: "RawMessage", read: ValueReader | None, retries: "Retries | None" = None) -> None:
        """`retries` are the consumer's own."""
        self._raw = raw
        self._read = read
        self._retries = retries

    @property
    def value(self) -> Any:
        """The value; None for a tombstone. Raises where it cannot be decrypted or deserialised."""
        data = self._raw.value()
        if self._read is None or data is None:
            return data
        return self._read(self, data)

    @property
    def raw_value(self) -> bytes | None:
        """The bytes as they are stored: still sealed, not deserialised."""
        return self._raw.value()

    @property
    def key(self) -> bytes | None:
        return self._raw.key()

    @property
    def topic(self) -> str:
        return self._raw.topic()  # type: ignore[return-value]

    @property
    def partition(self) -> int:
        return self._raw.partition()  # type: ignore[return-value]

    @property
    def offset(self) -> int:
        return self._raw.offset()  # type: ignore[return-value]

    @property
    def timestamp(self) -> int | None:
        """Epoch milliseconds: when it was made, or appended if the topic says so."""
        kind, timestamp_ms = self._raw.timestamp()
        return timestamp_ms if kind else None

    @property
    def time(self) -> datetime | None:
        timestamp_ms = self.timestamp
        return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1000, UTC)

    @property
    def headers(self) -> Headers:
        """All headers in order; a name may occur more than once. None where a name is not UTF-8."""
        return headers_of(self._raw)

    def header(self, name: str) -> bytes | None:
        """The last header of a name."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    @property
    def id(self) -> str | None:
        """The unique id its producer gave it; None when that was another client."""
        value = self.header(ID_HEADER)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def tags(self) -> tuple[str, ...]:
        return tags.decode(value for name, value in self.headers if name == tags.HEADER)[0]

    @property
    def labels(self) -> dict[str, str]:
        return tags.decode(value for name, value in self.headers if name == tags.HEADER)[1]

    @property
    def attempt(self) -> int:
        """Which try this is: 1, or more when it comes from a retry topic."""
        # Whoever passes headers on passes these on, too: they count where a retry has written them.
        if self._retries is not None:
            return self._retries.attempt(self)
        believed = retry_headers.origin_in(self.topic, self.headers) is not None
        return retry_headers.failures(self.headers) + 1 if believed else 1

    @property
    def origin(self) -> Origin:
        """Where it was first stored: itself, unless it comes from a retry or dead-letter topic."""
        found = retry_headers.origin_in(self.topic, self.headers)
        return Origin(*(found or (self.topic, self.partition, self.offset)))

    def __repr__(self) -> str:
        return f"<Message {self.topic}[{self.partition}]@{self.offset} key={self.key!r}>"
