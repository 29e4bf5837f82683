"""A client may go past the budget for one large answer: from when that is promised until its last byte has gone."""

import asyncio
from struct import pack
from typing import TYPE_CHECKING

import pytest
from tests.unit.server.test_admission import HUGE, ROOM_BYTES, Loop
from tests.unit.server.test_owed import sliced
from tests.unit.server.test_sending import LIMIT_BYTES, MEGABYTE, Client
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections
from tests.unit.waiting import until

from penstock.core.limits import (
    ANSWER_FAVOURED_SECONDS,
    REQUESTS_HELD_BYTES_ALL_MAX,
    SEND_BUFFER_BYTES,
)
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.sending import SendBudget
from penstock.server.writer import Part

if TYPE_CHECKING:
    from penstock.server.connections import Connections
    from penstock.server.owing import Reply

SLICED, WAITING, ADMITTED, RUN, SMALL = range(10, 15)
ANSWER_BYTES = LIMIT_BYTES + MEGABYTE
SLICE_BYTES = 512 * 1024
RUN_BYTES = 100_000


class Answers:
    """Some from a file, some small, some later, some large and admitted, some of a coroutine."""

    def __init__(self) -> None:
        self.later: list[Reply] = []
        self.runs = 0
        self.fails = False

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        key = frame[1]
        if key in (SLICED, SMALL):
            return [sliced(SLICE_BYTES) if key == SLICED else b"small"]
        if key == WAITING:
            self.later.append(connection.defer(held_bytes=len(frame)))
        else:
            connection.run(self._admitted(connection) if key == ADMITTED else self._run())
        return None

    async def _admitted(self, connection: KafkaConnection) -> list[Part]:
        room = connection.room_for(HUGE)
        if room is not None:
            await room
        if self.fails:
            raise ValueError("a bug")
        return [bytes(ANSWER_BYTES)]

    async def _run(self) -> list[Part]:
        self.runs += 1
        await asyncio.sleep(0)
        return [bytes(RUN_BYTES)]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


class Read(Wire):
    """A client that reads when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_bytes = 0

    def get_write_buffer_size(self) -> int:
        return len(self.written) - self.taken_bytes

    def close(self) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.host: Connections = connections(self.loop)
        self.budget = self.host.send_budget = SendBudget(self.loop, LIMIT_BYTES)
        self.answers, self.wire = Answers(), Read()
        self.connection = KafkaConnection(self.loop, self.host, self.answers, Unlistened())
        self.connection.connection_made(self.wire)
        self.other = Client(self.budget, "other")

    def ask(self, *keys: int) -> None:
        data = b"".join(pack(">ihhi", 8, key, 0, 0) for key in keys)
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def read(self, size_bytes: int) -> None:
        """As the socket takes it: little by little where it comes from a file."""
        while size_bytes:
            taken = min(size_bytes, self.wire.get_write_buffer_size())
            assert taken, "there is nothing to read"
            self.wire.taken_bytes += taken
            size_bytes -= taken
            if not self.wire.get_write_buffer_size():
                self.connection.resume_writing()

    def other_waits(self) -> "asyncio.Future[None]":
        turn = self.budget.admit(self.other, HUGE)
        assert turn is not None, "the favour is lost"
        return turn


async def test_the_favour_lasts_to_the_end_of_its_answer_also_behind_another_one() -> None:
    scene = Scene()
    scene.ask(SLICED, ADMITTED)
    await until(lambda: scene.connection.unsent_bytes() >= SLICE_BYTES + ANSWER_BYTES - 512)
    turn = scene.other_waits()
    scene.read(SLICE_BYTES + ANSWER_BYTES - 1)
    scene.budget.hold(scene.other, 1)
    scene.budget.hold(scene.connection, scene.connection.kept_bytes())
    assert not turn.done(), "its last byte is not read yet"
    assert not scene.wire.aborted
    scene.read(1)
    assert turn.done()
    assert not scene.wire.aborted


async def test_the_favour_lasts_while_its_answer_waits_for_one_before_it_and_while_it_is_handed_over() -> (
    None
):
    scene = Scene()
    scene.ask(WAITING, ADMITTED)
    await until(lambda: scene.connection.kept_bytes() == ANSWER_BYTES)
    turn = scene.other_waits()
    scene.answers.later[0].send([b"first"])
    third = scene.budget.admit(Client(scene.budget, "third"), HUGE)  # in the same turn of the loop
    await until(lambda: scene.connection.unsent_bytes() == len(b"first") + ANSWER_BYTES)
    assert not scene.wire.aborted
    assert third is not None
    assert not turn.done(), "it has read nothing yet"
    scene.ask(SMALL)
    scene.read(len(b"first") + ANSWER_BYTES)
    assert turn.done(), "not for what comes behind it"


@pytest.mark.parametrize("is_lost", [True, False])
async def test_the_favour_ends_where_its_answer_never_comes(is_lost: bool) -> None:
    scene = Scene()
    scene.answers.fails = True
    scene.ask(ADMITTED)
    await asyncio.sleep(0)
    assert scene.budget.used_bytes == 0
    if is_lost:
        scene.connection.connection_lost(None)
    turn = scene.budget.admit(scene.other, HUGE)
    await until(lambda: turn is None or turn.done())


async def test_the_favour_ends_where_its_client_leaves_before_what_it_waits_for() -> None:
    scene = Scene()
    scene.ask(WAITING, ADMITTED)
    await until(lambda: scene.connection.kept_bytes() == ANSWER_BYTES)
    turn = scene.other_waits()
    scene.connection.connection_lost(None)
    assert turn.done()
    assert scene.host.held_bytes == 0


def test_the_watch_ends_with_the_favour() -> None:
    """It closed the client while its next answer was being made: there was nothing to read."""
    loop = Loop()
    budget = SendBudget(loop, LIMIT_BYTES)
    client, other = Client(budget, "client"), Client(budget, "other")
    assert budget.admit(client, HUGE) is None
    client.answered()
    client.reads(HUGE - MEGABYTE)
    turn = budget.admit(other, HUGE)  # from now on the client is watched
    client.reads(MEGABYTE)
    client.gets(0)
    assert turn is not None
    assert turn.done()
    other.answered()
    other.reads(HUGE)
    other.gets(0)
    assert budget.admit(client, HUGE) is None, "favoured again"
    turn = budget.admit(other, HUGE)
    loop.turn(ANSWER_FAVOURED_SECONDS)
    assert not client.aborted, "its answer is being made"
    client.answered()
    loop.turn(ANSWER_FAVOURED_SECONDS)
    loop.turn(ANSWER_FAVOURED_SECONDS)
    assert client.aborted, "now it does not read"
    assert turn is not None
    assert turn.done()


def test_what_a_favoured_client_holds_besides_counts_as_everybodys() -> None:
    """Its next answer did not before the first had gone; then both that and what others had got instead."""
    budget = SendBudget(Loop(), LIMIT_BYTES)
    client, other = Client(budget, "client"), Client(budget, "other")
    client.gets(1000)
    assert budget.admit(client, HUGE) is None
    assert budget.used_bytes == 1000
    client.answered()
    client.reads(1000 + HUGE - 1)
    assert budget.admit(client, ROOM_BYTES) is None
    assert budget.admit(other, ROOM_BYTES) is not None, "there is room for one of them"
    assert budget.used_bytes == ROOM_BYTES
    client.reads(1)
    client.answered()
    assert budget.used_bytes == ROOM_BYTES


def test_whoever_finds_that_a_favour_is_over_lets_the_next_one_in() -> None:
    budget = SendBudget(Loop(), LIMIT_BYTES)
    reader, first, last = (Client(budget, peer) for peer in ("reader", "first", "last"))
    assert budget.admit(reader, HUGE) is None
    reader.answered()
    turn = budget.admit(first, HUGE)
    reader.reads(HUGE)
    assert budget.admit(last, HUGE) is not None
    assert turn is not None
    assert turn.done(), "it has waited for longer"


def test_who_waits_for_its_own_next_answer_is_not_watched_for_that() -> None:
    loop = Loop()
    budget = SendBudget(loop, LIMIT_BYTES)
    slow, other = Client(budget, "slow"), Client(budget, "other")
    assert budget.admit(slow, HUGE) is None
    slow.answered()
    slow.reads(HUGE - MEGABYTE)
    assert budget.admit(slow, HUGE) is not None
    loop.turn(ANSWER_FAVOURED_SECONDS)
    loop.turn(ANSWER_FAVOURED_SECONDS)
    assert not slow.aborted, "nobody else waits"
    assert budget.admit(other, HUGE) is not None
    loop.turn(ANSWER_FAVOURED_SECONDS)
    assert slow.aborted


async def test_a_client_that_does_not_read_has_no_more_answered_also_by_coroutines() -> None:
    scene = Scene()
    asked = 60
    scene.ask(*[RUN] * asked)
    for _ in range(10 * asked):
        await asyncio.sleep(0)
    assert scene.connection.unsent_bytes() <= SEND_BUFFER_BYTES + RUN_BYTES
    assert not scene.wire.reading
    for _ in range(asked):
        await until(lambda: scene.wire.get_write_buffer_size() > 0)
        scene.read(RUN_BYTES)
    assert scene.answers.runs == asked
    await until(lambda: scene.wire.reading)


async def test_a_large_answer_behind_its_own_long_poll_crowds_nobody_else() -> None:
    """It is counted where answers are. Past this bound others ask for less, and some are closed for what they owe."""
    scene = Scene()
    assert ANSWER_BYTES < REQUESTS_HELD_BYTES_ALL_MAX < 2 * ANSWER_BYTES
    scene.host.held_bytes = REQUESTS_HELD_BYTES_ALL_MAX // 2
    before = scene.host.held_bytes
    scene.ask(WAITING, ADMITTED)
    await until(lambda: scene.connection.kept_bytes() == ANSWER_BYTES)
    assert scene.host.held_bytes <= REQUESTS_HELD_BYTES_ALL_MAX
    assert not scene.wire.reading, "but its own client asks for no more"
    scene.answers.later[0].send([b"first"])
    await until(lambda: scene.connection.unsent_bytes() > ANSWER_BYTES)
    assert scene.host.held_bytes == before
