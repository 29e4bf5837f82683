"""Answers that are there and wait for those before them: what they hold counts, and bounds what is asked for more."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING

import pytest
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections

from penstock.core.limits import (
    ANSWER_ASSUMED_BYTES,
    FETCH_SLICES_MAX,
    REQUESTS_HELD_BYTES_ALL_MAX,
    REQUESTS_HELD_BYTES_MAX,
    SLICE_BYTES_MIN,
)
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part
from penstock.storage.segment import Slice
from penstock.testing.mem_files import MemFiles
from penstock.wire.kafka.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.server.owing import Reply

FETCH, METADATA, DESCRIBE_GROUPS = ApiKey.FETCH, ApiKey.METADATA, ApiKey.DESCRIBE_GROUPS
ANSWER_BYTES = 10_000
FRAME_BYTES = 8
MANY = 500  # they fit into the buffer of a new connection


class Dispatcher:
    """The first request waits, the others are answered: at once, by a coroutine, or later; some with slices."""

    def __init__(self, answer: list[Part], how: str) -> None:
        self._answer, self._how = answer, how
        self.first: Reply | None = None
        self.later: list[Reply] = []
        self.seen = 0

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.seen += 1
        if self.first is None:
            self.first = connection.defer(held_bytes=len(frame))
        elif self._how == "coroutine":
            connection.run(self._answered())
        elif self._how == "later":
            self.later.append(connection.defer())
        else:
            return list(self._answer)
        return None

    async def _answered(self) -> list[Part]:
        await asyncio.sleep(0)
        return list(self._answer)

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


def receive(connection: KafkaConnection, key: ApiKey, number: int) -> None:
    data = (pack(">ihhi", FRAME_BYTES, key, 0, 0)) * number
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


async def turns(number: int = 3 * MANY) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def told(
    dispatcher: Dispatcher,
    story: Callable[[KafkaConnection, Wire, Connections], Awaitable[None]],
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        host, wire = connections(loop), Wire()
        connection = KafkaConnection(loop, host, dispatcher, Unlistened())
        connection.connection_made(wire)
        await story(connection, wire, host)
        connection.connection_lost(None)
        assert host.descriptors.lent == 0

    asyncio.run(run())


@pytest.mark.parametrize("how", ["at once", "coroutine"])
def test_answers_behind_one_that_waits_are_bounded(how: str) -> None:
    dispatcher = Dispatcher([bytes(ANSWER_BYTES)], how)

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        receive(connection, METADATA, MANY)
        await turns()
        assert not wire.reading
        assert dispatcher.seen <= REQUESTS_HELD_BYTES_MAX // ANSWER_BYTES + 3
        assert dispatcher.first is not None
        dispatcher.first.send([b"first"])
        await turns()
        assert dispatcher.seen == MANY, "it goes on when the first is answered"
        assert wire.reading
        assert len(wire.written) == 5 + (MANY - 1) * ANSWER_BYTES

    told(dispatcher, story)


def test_answers_that_come_later_are_bounded_before_anybody_knows_them() -> None:
    dispatcher = Dispatcher([], "later")

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        receive(connection, DESCRIBE_GROUPS, MANY)
        await turns()
        assert not wire.reading
        assert len(dispatcher.later) <= REQUESTS_HELD_BYTES_MAX // ANSWER_ASSUMED_BYTES + 2
        while dispatcher.later:
            dispatcher.later.pop(0).send([bytes(ANSWER_BYTES)])
        await turns()
        assert not dispatcher.later, "what they were counts now, and it is too much"
        assert dispatcher.first is not None
        dispatcher.first.send([b"first"])
        await turns()
        assert dispatcher.later, "others are taken"

    told(dispatcher, story)


def sliced(size: int) -> Slice:
    file = MemFiles().open(Path("/0.log"), create=True)
    file.pwrite(bytes(size), 0)
    return Slice(file, 0, size)


def test_slices_in_answers_that_wait_are_counted_and_bounded() -> None:
    dispatcher = Dispatcher([b"head", sliced(SLICE_BYTES_MIN)], "at once")

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        receive(connection, FETCH, 2 * FETCH_SLICES_MAX)
        await turns()
        assert not wire.reading
        assert host.descriptors.lent == FETCH_SLICES_MAX
        assert dispatcher.seen == 1 + FETCH_SLICES_MAX
        assert dispatcher.first is not None
        dispatcher.first.send([b"first"])
        await turns()
        assert dispatcher.seen == 2 * FETCH_SLICES_MAX
        assert host.descriptors.lent == 0

    told(dispatcher, story)


def test_small_slices_that_wait_are_read_so_that_they_hold_no_file() -> None:
    dispatcher = Dispatcher([sliced(SLICE_BYTES_MIN - 1)], "at once")

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        receive(connection, FETCH, MANY)
        await turns()
        assert host.descriptors.lent == 0
        assert dispatcher.seen <= REQUESTS_HELD_BYTES_MAX // SLICE_BYTES_MIN + 3

    told(dispatcher, story)


def test_a_slice_that_cannot_be_read_any_more_ends_its_connection() -> None:
    lost = sliced(10)
    dispatcher = Dispatcher([lost], "at once")

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        lost.file.revoke()
        receive(connection, FETCH, 2)
        assert wire.aborted

    told(dispatcher, story)


class Follower(Dispatcher):
    """A coroutine finds out who will answer; what that one asks for is kept as long."""

    def __init__(self) -> None:
        super().__init__([], "")
        self.found = asyncio.Event()
        self.abandoned = 0

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> None:
        connection.run(self._find(), REQUESTS_HELD_BYTES_MAX + 1)

    async def _find(self) -> Callable[["Reply"], None]:
        await self.found.wait()
        return self._follow

    def _follow(self, reply: "Reply") -> None:
        self.first, reply.abandoned = reply, self._abandon

    def _abandon(self) -> None:
        self.abandoned += 1


@pytest.mark.parametrize("is_found_first", [True, False])
def test_whoever_will_answer_hears_that_the_client_is_gone(is_found_first: bool) -> None:
    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        receive(connection, FETCH, 1)
        if is_found_first:
            dispatcher.found.set()
            await turns(5)
            assert not wire.reading, "the request is large, and kept"
        connection.connection_lost(None)
        dispatcher.found.set()
        await turns(5)
        assert dispatcher.abandoned == 1

    dispatcher = Follower()
    told(dispatcher, story)


def test_where_much_waits_on_all_connections_each_waits_for_one_answer_at_a_time() -> None:
    """Every record written looks at all who wait for its partition, whichever connections they came by."""
    dispatcher = Dispatcher([b"answer"], "later")

    async def story(connection: KafkaConnection, wire: Wire, host: Connections) -> None:
        host.held_bytes += REQUESTS_HELD_BYTES_ALL_MAX  # others
        receive(connection, METADATA, 5)
        await turns()
        assert dispatcher.first is not None
        dispatcher.first.send([b"answer"])  # a few bytes, and so taken in one turn with the next
        await turns()
        assert dispatcher.seen == 2
        dispatcher.later[0].send([b"answer"])
        await turns()
        assert dispatcher.seen == 3, "it goes on when its answer has come"
        host.held_bytes -= REQUESTS_HELD_BYTES_ALL_MAX
        dispatcher.later[1].send([b"answer"])
        await turns()
        assert dispatcher.seen == 5
        connection.connection_lost(None)
        assert host.held_bytes == 0

    told(dispatcher, story)
