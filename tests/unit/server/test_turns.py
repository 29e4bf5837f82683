"""A client that asks for much: taken a few requests at a time, with turns for others in between."""

import asyncio
from struct import pack
from typing import Any

from tests.unit.server.unlistened import Unlistened, connections
from tests.unit.waiting import until

from penstock.core.limits import REQUEST_AT_ONCE_BYTES_MAX, TURN_HELD_BYTES, TURN_SECONDS_MAX
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part
from penstock.wire.kafka.api_keys import ApiKey

FRAME_BYTES = 100
MANY = 70  # they fit into the buffer of a new connection
PER_TURN = TURN_HELD_BYTES // FRAME_BYTES + 1


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.aborted = False
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


class Waiters:
    """A dispatcher whose requests all wait, and note who sent them."""

    def __init__(self) -> None:
        self.seen: list[KafkaConnection] = []

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> None:
        self.seen.append(connection)
        connection.defer(held_bytes=len(frame))

    def write_held(self) -> None: ...


def connected(host: Connections, waiters: Waiters) -> tuple[KafkaConnection, Wire]:
    connection = KafkaConnection(asyncio.get_running_loop(), host, waiters, Unlistened())  # type: ignore[arg-type]
    wire = Wire()
    connection.connection_made(wire)
    return connection, wire


def receive(connection: KafkaConnection, number: int) -> None:
    """All in one read."""
    data = (pack(">i", FRAME_BYTES) + bytes(FRAME_BYTES)) * number
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def test_each_has_its_turn_and_everything_is_dispatched() -> None:
    async def story() -> None:
        waiters = Waiters()
        host = connections(asyncio.get_running_loop())
        (greedy, greedy_wire), (other, other_wire) = connected(host, waiters), connected(host, waiters)
        receive(greedy, MANY)
        assert len(waiters.seen) <= PER_TURN
        assert not greedy_wire.reading
        receive(other, 3)  # it need not wait for the rest
        assert waiters.seen[-3:] == [other] * 3
        assert other_wire.reading
        turns = 0
        while waiters.seen.count(greedy) < MANY:
            before = len(waiters.seen)
            await asyncio.sleep(0)
            assert len(waiters.seen) - before <= PER_TURN
            turns += 1
            assert turns < 2 * MANY, "what it sent is never taken"
        await asyncio.sleep(0)
        assert greedy_wire.reading

    asyncio.run(story())


def test_one_that_leaves_in_the_queue_holds_up_nobody() -> None:
    async def story() -> None:
        waiters = Waiters()
        host = connections(asyncio.get_running_loop())
        (gone, _), (stays, _) = connected(host, waiters), connected(host, waiters)
        receive(gone, MANY)
        receive(stays, MANY)
        gone.connection_lost(None)
        for _ in range(2 * MANY):
            await asyncio.sleep(0)
        assert waiters.seen.count(stays) == MANY
        assert waiters.seen.count(gone) <= PER_TURN

    asyncio.run(story())


def test_a_request_without_an_answer_leaves_no_gap_in_the_row() -> None:
    """acks=0, where the batch is opened in a thread: those behind it get their answers."""

    class Works(Waiters):
        def dispatch(self, connection: KafkaConnection, frame: memoryview) -> None:
            self.seen.append(connection)
            connection.run(self.answer(len(self.seen)))

        async def answer(self, number: int) -> list[Part] | None:
            return [b"answer"] if number == MANY else None

    async def story() -> None:
        works = Works()
        connection, wire = connected(connections(asyncio.get_running_loop()), works)
        receive(connection, MANY)
        for _ in range(2 * MANY):
            await asyncio.sleep(0)
        assert wire.written == b"answer"

    asyncio.run(story())


def test_a_turn_ends_by_time_however_few_bytes_were_asked_for() -> None:
    """An incremental fetch of 50 bytes looks at thousands of partitions, and may be answered with nothing."""

    class Slow(Waiters):
        now = 0.0

        def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part]:
            self.seen.append(connection)
            self.now += TURN_SECONDS_MAX / 2
            return [b"answer"]

    async def story() -> None:
        slow = Slow()
        loop = asyncio.get_running_loop()
        loop.time = lambda: slow.now  # type: ignore[method-assign]
        host = connections(loop)
        (greedy, greedy_wire), (other, other_wire) = connected(host, slow), connected(host, slow)
        receive(greedy, MANY)
        assert len(slow.seen) <= 3
        assert not greedy_wire.reading
        receive(other, 1)
        assert slow.seen[-1] is other
        assert other_wire.reading
        while slow.seen.count(greedy) < MANY:
            before = len(slow.seen)
            await asyncio.sleep(0)
            assert 1 <= len(slow.seen) - before <= 3
        assert greedy_wire.written == b"answer" * MANY
        assert greedy_wire.reading

    asyncio.run(story())


class Dear(Waiters):
    """Each takes a while, and is answered."""

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part]:  # type: ignore[override]
        self.seen.append(connection)
        return [b"answer"]


def receive_long(connection: KafkaConnection, api_key: int, size_bytes: int) -> None:
    """As much at a time as there is room for."""
    data = pack(">ih", size_bytes, api_key) + bytes(size_bytes - 2)
    while data:
        room = connection.get_buffer(-1)
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
        connection.buffer_updated(len(part))


def test_requests_that_may_take_long_are_carried_out_one_in_a_turn() -> None:
    """Eight of 60 KB, each of 20 ms, in one row: everybody else waited for all of them."""

    async def story() -> None:
        dear = Dear()
        host = connections(asyncio.get_running_loop(), request_bytes_max=1 << 20)
        several = [connected(host, dear) for _ in range(8)]
        for connection, wire in several:
            receive_long(connection, ApiKey.LEAVE_GROUP, REQUEST_AT_ONCE_BYTES_MAX + 1)
            assert not wire.reading
        small, _ = connected(host, dear)
        receive(small, 1)
        assert dear.seen == [small]
        seen: list[int] = []  # turn by turn

        def are_all_seen() -> bool:
            seen.append(len(dear.seen))
            return seen[-1] > len(several)

        await until(are_all_seen)
        assert seen == list(range(1, len(several) + 2))
        assert dear.seen[1:] == [connection for connection, _ in several]
        assert all(wire.reading and wire.written == b"answer" for _, wire in several)

    asyncio.run(story())


def test_a_batch_waits_for_no_turn() -> None:
    async def story() -> None:
        dear = Dear()
        host = connections(asyncio.get_running_loop(), request_bytes_max=1 << 20)
        producer, _ = connected(host, dear)
        receive_long(producer, ApiKey.PRODUCE, 1 << 19)
        broker, _ = connected(host, dear)
        broker.session.broker = 1
        receive_long(broker, ApiKey.FETCH, REQUEST_AT_ONCE_BYTES_MAX + 1)
        assert dear.seen == [producer, broker]

    asyncio.run(story())


def test_an_address_with_many_connections_leaves_others_their_turn() -> None:
    """600 of one address with commits of 54 KB: whoever else had something to wait for waited for all of them."""

    async def story() -> None:
        dear = Dear()
        host = connections(asyncio.get_running_loop(), request_bytes_max=1 << 20)
        crowd = [connected(host, dear)[0] for _ in range(6)]
        other, _ = connected(host, dear)
        other.session.peer = "elsewhere"
        for connection in (*crowd, other):
            receive_long(connection, ApiKey.OFFSET_COMMIT, REQUEST_AT_ONCE_BYTES_MAX + 1)
        await until(lambda: len(dear.seen) == len(crowd) + 1)
        assert dear.seen == [crowd[0], other, *crowd[1:]]

    asyncio.run(story())


def test_brokers_wait_for_no_client() -> None:
    async def story() -> None:
        waiters = Waiters()
        host = connections(asyncio.get_running_loop())
        crowd = [connected(host, waiters)[0] for _ in range(6)]
        for number, connection in enumerate(crowd):
            connection.session.peer = f"client {number}"
            receive(connection, MANY)
        broker, _ = connected(host, waiters)
        broker.session.broker = 1
        receive(broker, MANY)
        await until(lambda: waiters.seen.count(broker) == MANY)
        assert all(waiters.seen.count(connection) < MANY for connection in crowd)

    asyncio.run(story())


def test_who_waits_for_an_answer_and_sent_nothing_more_does_not_queue_up() -> None:
    """What it counts as is an assumption: a client that asks for little at a time has no turn to wait for."""

    class Later(Waiters):
        def dispatch(self, connection: KafkaConnection, frame: memoryview) -> None:
            self.seen.append(connection)
            connection.defer()

    async def story() -> None:
        later = Later()
        connection, wire = connected(connections(asyncio.get_running_loop()), later)
        data = pack(">ih", FRAME_BYTES, ApiKey.LIST_GROUPS) + bytes(FRAME_BYTES - 2)
        for number in range(1, 4):
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            assert len(later.seen) == number
            assert wire.reading

    asyncio.run(story())
