"""The source's end of a relay: where it goes on, and what it sends."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened, read, sync
from tests.unit.storage.transactions import aborted_in, marker, transactional

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, check_batch, read_header
from penstock.records.relay import Relayed, RelayPlace, position_batch, relayed_by, retired_source
from penstock.replication.partition import Partition
from penstock.replication.retirement import (
    Close,
    ask_anew,
    freeze,
    is_drained,
    left_to_move,
    retire,
    retirement_of,
)
from penstock.services.relay import retired
from penstock.services.relay.pump import Moved, Pump
from penstock.services.relay.retired import RetiredSource, parted_at, prepared
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import dump_producers, load_producers
from penstock.storage.producers import ProducerState
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop


def a_log(*epochs: int) -> Log:
    """One record for each, written under that leader epoch."""
    log = opened(MemFiles()).log
    for epoch in epochs:
        append(log, a_batch(), epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (None, 2),
        (RelayPlace(1, 0), 3),
        (RelayPlace(1, 1), 4),
        (RelayPlace(3, 3), 6),
        (RelayPlace(1, 5), 4),  # of its epoch we have less: it was lost here, and others were written
        (RelayPlace(2, 9), 4),  # of an epoch that left nothing here
        (RelayPlace(9, 9), 7),  # of one that is later than all we have
        (RelayPlace(0, 0), 2),  # of a partition that was there before this one
    ],
)
def test_it_goes_on_behind_what_the_target_has_or_where_the_two_parted(
    place: RelayPlace | None, offset: int
) -> None:
    places = () if place is None else (place,)
    is_ours = place is None or place.epoch not in (2, 9)
    assert parted_at(a_log(1, 1, 1, 1, 3, 3, 3), 2, places) == (offset, is_ours)


@pytest.mark.parametrize(
    ("places", "offset"),
    [
        ([(2, 3), (1, 0)], 3),  # 2 parted from 1 behind the first record
        ([(5, 9), (4, 9), (3, 1), (1, 1)], 4),
        ([(5, 9), (2, 9)], 7),  # nothing of ours: behind the last that it has, as far as we come
    ],
)
def test_where_the_latest_is_of_no_history_of_ours_the_earlier_ones_tell(
    places: list[tuple[int, int]], offset: int
) -> None:
    told = [RelayPlace(*place) for place in places]
    assert parted_at(a_log(1, 1, 1, 1, 3, 3, 3), 2, told) == (offset, False)


def test_a_target_knows_how_far_it_had_got_with_earlier_leaders() -> None:
    state = ProducerState()
    for epoch, distance in ((1, 4), (1, 9), (2, 7), (2, 8), (5, 3)):
        state.record(read_header(position_batch(retired_source(7), RelayPlace(epoch, distance), NOW_MS)), 50)
    expected = (RelayPlace(5, 3), RelayPlace(2, 2), RelayPlace(1, 2))
    assert state.relays.by_source[retired_source(7)].places() == expected
    again = load_producers(dump_producers(state.copy()))
    assert again.relays.by_source[retired_source(7)].places() == expected
    assert again.relays.by_source[retired_source(7)].batch.last_offset == 50
    assert again.copy() == state.copy()


def test_batches_say_where_they_come_from_and_control_records_are_only_counted() -> None:
    log = opened(MemFiles()).log
    append(log, a_batch([NOW_MS] * 2), epoch=4)
    append(log, position_batch(retired_source(9), RelayPlace(1, 1), NOW_MS), epoch=4)
    append(log, a_batch([NOW_MS] * 3), epoch=5)
    data = bytearray(log.active.file.pread(log.active.size, 0))
    chunk = prepared(data, 7, 1, 2, RelayPlace(4, 0))
    assert (chunk.next_number, chunk.place, chunk.lost) == (5, RelayPlace(5, 4), [])
    headers = headers_of(chunk.batches)
    assert [relayed_by(header) for header in headers] == [Relayed(7, 4, 1, 1), Relayed(7, 5, 2, 4)]
    assert [header.is_control for header in headers] == [True, False]


def headers_of(batches: bytearray) -> list[BatchHeader]:
    headers, position = [], 0
    while position < len(batches):
        headers.append(check_batch(memoryview(batches), position))
        position += headers[-1].size_bytes
    return headers


@pytest.mark.parametrize(
    ("place", "lost", "sent"),
    [
        (
            RelayPlace(1, 0),
            [range(1, 2)],
            [Relayed(7, 1, 1, 1, skips=True), Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)],
        ),
        (RelayPlace(1, 1), [], [Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)]),
        # Also to a target that knows nothing: else it would wait for the beginning.
        (
            None,
            [range(2)],
            [Relayed(7, 1, 1, 1, skips=True), Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)],
        ),
        # A leader has begun to move what was written under earlier epochs as its own: its successor goes on so.
        (RelayPlace(2, 1), [], [Relayed(7, 2, 2, 2), Relayed(7, 3, 3, 3)]),
        (
            RelayPlace(2, 9),
            [],
            [Relayed(7, 2, 2, 2), Relayed(7, 3, 3, 3)],
        ),  # a later epoch may go on from further back
    ],
)
def test_what_nobody_has_any_more_is_said_to_be_lost(
    place: RelayPlace | None, lost: list[range], sent: list[Relayed]
) -> None:
    log = a_log(1, 1, 1, 1, 1, 3)
    data = bytearray(log.active.file.pread(log.active.size, 0))
    chunk = prepared(data, 7, 2, 4, place)  # what lies before offset 4 was moved and deleted
    assert chunk.lost == lost
    assert [relayed_by(header) for header in headers_of(chunk.batches)] == sent
    assert [header.is_control for header in headers_of(chunk.batches)] == [header.skips for header in sent]
    state = ProducerState()
    if place is not None:
        state.record(read_header(position_batch(retired_source(7), place, NOW_MS)), 0)
    for offset, header in enumerate(headers_of(chunk.batches)):
        if state.check_relayed(header, b"") is None:
            state.record(header, offset)
    assert state.relays.by_source[retired_source(7)].place == chunk.place == RelayPlace(3, 3)


class Target:
    """Takes batches as a log would; fails when it is told to, before or after it has taken them."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.moved: list[Relayed] = []
        self.troubles: list[str] = []
        self.epoch = 3
        self.elected = ProducerState(), 4  # what is known there once it has lost what it had, and the epoch

    async def places(self) -> tuple[RelayPlace, ...]:
        word = self.state.relays.get(retired_source(2))
        return () if word is None else word.places()

    async def deliver(self, batches: bytearray) -> None:
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "before":
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if trouble == "unforeseen":
            raise ValueError("a bug")
        position = 0
        while position < len(batches):
            header = read_header(batches, position)
            position += header.size_bytes
            if self.state.check_relayed(header, b"") is None:
                self.state.record(header, len(self.moved))
                self.moved.append(relayed_by(header))
        if trouble == "lost":
            self.state, self.epoch = self.elected
            self.moved = []
        if trouble == "after":
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


class NoSyncer:
    def request(self, partition: Partition) -> None:
        raise AssertionError("nothing here is synced")


@pytest.mark.parametrize(
    "troubles", [[], ["before"], ["after"], ["after", "before", "after"], ["unforeseen"]]
)
def test_every_record_arrives_once_whatever_fails(troubles: list[str]) -> None:
    partition = Partition("t", bytes(16), 2, opened(MemFiles()).log, 1, NoSyncer(), sync_before_ack=False)

    def write() -> None:
        batch = a_batch()
        partition.append(memoryview(batch), read_header(batch), NOW_MS)

    write()
    freeze(partition, NOW_MS)
    target = Target()
    target.troubles = list(troubles)
    moved = Moved()
    with SimLoop(1) as loop:
        loop.spawn("source", Pump(RetiredSource(loop, None, partition), target, moved).run())
        for number in range(1, 6):
            write()
            loop.run_until(lambda: retirement_of(partition).moved >= partition.log.end_offset)
            assert [chunk.first for chunk in target.moved] == list(range(number))
            assert left_to_move(partition) == 0
    assert moved.records == 5 - troubles.count("after"), "an answer that is lost tells nothing"
    assert moved.size_bytes == moved.records * len(a_batch())


@pytest.mark.parametrize(("known", "epoch"), [([], 3), ([], 4), ([RelayPlace(1, 9)], 4)])
def test_a_target_that_lost_what_it_had_while_there_is_more_to_move_gets_all_again(
    known: list[RelayPlace], epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is elected there has nothing of it, or only what a leader of the source moved that lost its own end.

    Nor need the source have heard yet that another one leads it.
    """
    monkeypatch.setattr(retired, "_CHUNK_BYTES", 1)
    partition = Partition("t", bytes(16), 2, opened(MemFiles()).log, 2, NoSyncer(), sync_before_ack=False)
    freeze(partition, NOW_MS)
    for _ in range(4):
        batch = a_batch()
        partition.append(memoryview(batch), read_header(batch), NOW_MS)
    target = Target()
    target.elected = ProducerState(), epoch
    for place in known:
        target.elected[0].record(read_header(position_batch(retired_source(2), place, NOW_MS)), 0)
    target.troubles = ["", "lost"]
    with SimLoop(1) as loop:
        loop.spawn("source", Pump(RetiredSource(loop, None, partition), target, Moved()).run())
        loop.run_until(lambda: is_drained(partition))
    assert [chunk.first for chunk in target.moved] == [0, 1, 2, 3]


def test_a_target_that_lost_what_it_had_while_nobody_wrote_gets_it_again() -> None:
    partition = Partition("t", bytes(16), 2, opened(MemFiles()).log, 1, NoSyncer(), sync_before_ack=False)
    freeze(partition, NOW_MS)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    target = Target()
    with SimLoop(1) as loop:
        loop.spawn("source", Pump(RetiredSource(loop, None, partition), target, Moved()).run())
        loop.run_until(lambda: is_drained(partition))
        target.state, target.moved, target.epoch = ProducerState(), [], 4
        loop.run_until(lambda: bool(target.moved))
        # Once more before it is closed: somebody asks for that.
        ask_anew(partition, Close.ASKED)
        assert not is_drained(partition)
        loop.run_until(lambda: retirement_of(partition).close is Close.CONFIRMED)
        assert is_drained(partition)


def test_what_the_target_told_before_it_was_asked_to_close_confirms_nothing() -> None:
    """It may have lost its end since."""
    partition = Partition("t", bytes(16), 2, opened(MemFiles()).log, 1, NoSyncer(), sync_before_ack=False)
    freeze(partition, NOW_MS)
    with SimLoop(1) as loop:
        source = RetiredSource(loop, None, partition)
    source.asks_target()
    ask_anew(partition, Close.ASKED)
    source.resumed(0)
    retirement = retirement_of(partition)
    assert retirement.close is Close.ASKED
    source.asks_target()
    source.resumed(0)
    assert (retirement.close, retirement.moved) == (Close.CONFIRMED, 0)


def test_what_was_aborted_is_counted_and_what_was_committed_is_moved_as_any_record() -> None:
    log = opened(MemFiles()).log
    append(log, transactional((1, 0, 0)))
    append(log, transactional((2, 0, 0)))
    append(log, marker(1, 0, committed=False))
    append(log, marker(2, 0, committed=True))
    data = bytearray(read(log, 0))
    moved = headers_of(prepared(data, 7, 0, 0, None, aborted_in(log, 0, 4)).batches)
    assert [(header.is_control, relayed_by(header).first) for header in moved] == [
        (True, 0),
        (False, 1),
        (True, 2),
        (True, 3),
    ]
    assert not any(header.is_transactional for header in moved)


@pytest.mark.parametrize(
    "where", ["in memory", "in the file of a sealed segment", "in a log that was opened"]
)
def test_what_was_aborted_is_moved_by_nobody_wherever_the_list_of_it_is(where: str) -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, transactional((1, 0, 0), 2))
    append(log, marker(1, 0, committed=False))
    if where != "in memory":
        log.roll(NOW_MS)
        append(log, a_batch())
        sync(log, checkpoint=True)
    if where == "in a log that was opened":
        log = opened(files).log
    partition = Partition("t", bytes(16), 2, log, 1, NoSyncer(), sync_before_ack=False)
    retire(partition, 0, None, NOW_MS)
    with SimLoop(1) as loop:
        source = RetiredSource(loop, None, partition)
        chunk = loop.run_until_complete(loop.spawn("source", source.read(0, None)))
    moved = [header.record_count for header in headers_of(chunk.batches) if not header.is_control]
    assert (moved, chunk.next_number) == ([], 3)
