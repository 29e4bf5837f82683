"""What a scripted broker stores: see scripted.py."""

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.consuming.unfinished import Where

Header = tuple[str, Any]


@dataclass(frozen=True)
class Stored:
    """A message, or an error that comes in place of one."""

    at: Where
    number: int = -1
    data: bytes = b""
    name: bytes | None = None
    told: tuple[Header, ...] = ()
    wrong: KafkaError | None = None
    at_ms: int = 0

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> list[Header]:
        if any(isinstance(name, bytes) for name, _ in self.told):  # a name that is not UTF-8
            raise SystemError("headers returned a result with an exception set")
        return list(self.told)

    def set_headers(self, _: list[Header]) -> None:
        object.__setattr__(self, "told", ())

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at_ms

    def error(self) -> KafkaError | None:
        return self.wrong
