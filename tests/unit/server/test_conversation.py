"""Small requests with small answers keep the broker idle_poll; bulk in either direction does not."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.unit.server.unlistened import Unlistened

from penstock.core.descriptors import Descriptors, Shares
from penstock.core.limits import SMALL_TALK_BYTES_MAX
from penstock.core.stats import RequestStats
from penstock.server.idle_poll import IdlePoll
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.receiving import ReceiveBudget
from penstock.server.sending import SendBudget
from penstock.server.writer import Part

SMALL, BULK = 100, SMALL_TALK_BYTES_MAX + 1


class CountingAwake(IdlePoll):
    prolonged = 0

    def prolong(self) -> None:
        self.prolonged += 1


class Server:
    """Host and dispatcher: every request gets an answer of one size."""

    request_bytes_max = 10 * BULK
    bytes_in = bytes_out = held_bytes = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, answer_bytes: int) -> None:
        self.requests = RequestStats()
        self.idle_poll = CountingAwake(loop, 0)
        self.descriptors = Descriptors(Shares(100, 100))
        self.receive_budget = ReceiveBudget(loop, -1)
        self.send_budget = SendBudget(loop)
        self._answer = bytes(answer_bytes)

    def opened(self, connection: KafkaConnection) -> bool:
        return True

    def closed(self, connection: KafkaConnection) -> None: ...

    def run(self, work: Coroutine[object, object, None]) -> None: ...

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        return [self._answer]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


class Wire(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


@pytest.mark.parametrize(
    ("request_bytes", "answer_bytes", "prolonged"), [(SMALL, SMALL, 1), (BULK, SMALL, 0), (SMALL, BULK, 0)]
)
def test_only_small_talk_keeps_awake(request_bytes: int, answer_bytes: int, prolonged: int) -> None:
    loop = asyncio.new_event_loop()
    try:
        server = Server(loop, answer_bytes)
        connection = KafkaConnection(loop, server, server, Unlistened())
        connection.connection_made(Wire())
        frame = request_bytes.to_bytes(4, "big") + bytes(request_bytes)
        while frame:
            room = connection.get_buffer(-1)
            taken = min(len(room), len(frame))
            room[:taken] = frame[:taken]
            connection.buffer_updated(taken)
            frame = frame[taken:]
        assert server.idle_poll.prolonged == prolonged
    finally:
        loop.close()
