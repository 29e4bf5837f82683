"""A broker in memory, behind the calls that the SDK's producer makes into librdkafka.

What the model needs to be true of librdkafka's binding, and is (2.x):

- a report is given once, inside a poll; an exception that comes out of it ends the poll and takes the report with it;
- that exception comes out of the poll, unless it is an interruption: then the call fails without saying why;
- a callback of the settings may raise, too, and comes out of the poll in the same way;
- `len` counts what is under way and what is not reported yet.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from confluent_kafka import KafkaError

Report = Callable[[KafkaError | None, Any], None]


@dataclass
class Answer:
    number: int
    wrong: KafkaError | None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 1, 1

    def error(self) -> KafkaError | None:
        return self.wrong


class RawProducer:
    room = 6

    def __init__(self, settings: dict[str, Any], random: Random) -> None:
        self._random = random
        self._settings = settings
        self._sent: deque[tuple[Report, Answer]] = deque()
        self._answered: deque[tuple[Report, Answer]] = deque()
        self.taken = 0
        self.headers: list[list[tuple[str, Any]]] = []
        self.closed = False
        self.frozen = False  # the broker does not answer

    def __len__(self) -> int:
        return len(self._sent) + len(self._answered)

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: list[tuple[str, Any]] | None = None,
    ) -> None:
        del topic, key, partition, timestamp
        if self.closed:
            raise RuntimeError("Producer has been closed")
        if len(self) >= self.room:
            raise BufferError
        assert on_delivery is not None
        for _, text in headers or ():
            if isinstance(text, str):
                text.encode()
        wrong = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if value == b"refused" else None
        self._sent.append((on_delivery, Answer(self.taken, wrong)))
        self.headers.append(headers or [])
        self.taken += 1

    def poll(self, timeout: float) -> int:
        if self.closed:
            raise RuntimeError("Producer has been closed")
        if self._sent and not self.frozen:
            for _ in range(self._random.randint(1 if timeout else 0, len(self._sent))):
                self._answered.append(self._sent.popleft())
        statistics = self._settings.get("stats_cb")
        if statistics is not None and self._random.random() < 0.2:
            statistics("{}")
        served = 0
        while self._answered:
            report, answer = self._answered.popleft()
            try:
                report(answer.wrong, answer)
            except KeyboardInterrupt:
                raise SystemError("poll returned NULL without setting an exception") from None
            served += 1
        return served

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self)

    def purge(self) -> None:
        while self._sent:
            report, answer = self._sent.popleft()
            answer.wrong = KafkaError(KafkaError._PURGE_QUEUE)
            self._answered.append((report, answer))

    def close(self) -> None:
        self.closed = True


def install(patch: Callable[[str, Any], None], random: Random, *, thread: bool = False) -> list[RawProducer]:
    """The SDK's producers of this process talk to what the list shows; `patch` is `monkeypatch.setattr`."""
    made: list[RawProducer] = []

    def make(settings: dict[str, Any]) -> RawProducer:
        made.append(RawProducer(settings, random))
        return made[-1]

    patch("penstock.client.producer.RawProducer", make)
    patch("penstock.client.producer.reach", lambda _: None)
    patch("penstock.client.producer._SWEEP_MASK", 0x3)
    patch("penstock.client.producer._LAST_FLUSH_SECONDS", 0.01)
    patch("penstock.client.polling._TICK_SECONDS", 0.0)
    if not thread:
        patch("penstock.client.polling.Pump.start", lambda _: None)
    return made
