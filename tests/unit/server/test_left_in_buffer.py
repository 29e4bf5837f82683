"""Whatever stops requests from being taken, all that arrived are taken in the end, also if the client sends no more."""

import asyncio
import random
from struct import pack
from typing import TYPE_CHECKING

import pytest
from tests.unit.server.test_owed import sliced
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections

from penstock.core.limits import SLICE_BYTES_MIN
from penstock.server import kafka_connection
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part
from penstock.wire.kafka.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.owing import Reply

FRAME_BYTES = 8
# Small bounds, so that a story of some 40 requests meets each of them.
BOUNDS = {
    "RESPONSES_OWED_MAX": 5,
    "TURN_HELD_BYTES": 100,
    "REQUESTS_HELD_BYTES_MAX": 400,
    "FETCH_SLICES_MAX": 2,
    "ANSWERS_GATHERED_MAX": 3,
}
HOW = ("now", "large", "sliced", "settled", "coroutine", "later")


class Dispatcher:
    """Each request says in its last byte how it is answered; the answer begins with its number."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self._slice = sliced(SLICE_BYTES_MIN)
        self._unsettled: list[Callable[[], None]] = []
        self.seen = 0

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.seen += 1
        number = bytes(frame[4:8])
        match HOW[frame[3]]:
            case "now":
                return [number]
            case "large":
                return [number, bytes(500)]
            case "sliced":
                return [number, self._slice]
            case "settled":  # as a Fetch that waits for what a Produce before it appended
                reply = connection.defer(held_bytes=150)
                self._unsettled.append(lambda: reply.send([number]))
            case "coroutine":
                connection.run(self._answered(number))
            case "later":
                self._later(connection.defer(held_bytes=150), number)
        return None

    def _later(self, reply: "Reply", number: bytes) -> None:
        if self._rng.random() < 0.5:
            self._loop.call_soon(self._later, reply, number)
        else:
            reply.send([number])

    async def _answered(self, number: bytes) -> list[Part]:
        await asyncio.sleep(0)
        return [number]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None:
        unsettled, self._unsettled = self._unsettled, []
        for answer in unsettled:
            answer()


def run(seed: int, how: list[str]) -> tuple[int, bytes]:
    """How many requests of one write were taken, and all that was written."""

    async def story() -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        dispatcher = Dispatcher(loop, random.Random(seed))
        connection, wire = KafkaConnection(loop, connections(loop), dispatcher, Unlistened()), Wire()
        connection.connection_made(wire)
        data = b"".join(
            pack(">ihhi", FRAME_BYTES, ApiKey.FETCH, HOW.index(way), number) for number, way in enumerate(how)
        )
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
        for _ in range(20 * len(how)):
            await asyncio.sleep(0)
        assert wire.reading
        return dispatcher.seen, bytes(wire.written)

    return asyncio.run(story())


def expected(how: list[str]) -> bytes:
    behind = {"large": bytes(500), "sliced": bytes(SLICE_BYTES_MIN)}
    return b"".join(pack(">i", number) + behind.get(way, b"") for number, way in enumerate(how))


@pytest.mark.parametrize("seed", range(40))
def test_all_that_arrived_in_one_write_is_answered_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in BOUNDS.items():
        monkeypatch.setattr(kafka_connection, name, value)
    rng = random.Random(seed)
    how = rng.choices(HOW, [rng.random() for _ in HOW], k=rng.randint(2, 40))
    assert run(seed, how) == (len(how), expected(how))


@pytest.mark.parametrize(("bound", "value"), [("TURN_HELD_BYTES", 100), ("RESPONSES_OWED_MAX", 1)])
def test_a_request_behind_one_that_settling_answers(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stopped it is over when its turn ends, and it goes on reading: the client has nothing more to say."""
    monkeypatch.setattr(kafka_connection, bound, value)
    assert run(0, ["settled", "now"]) == (2, pack(">ii", 0, 1))
