"""The source's end of a relay: where it goes on, and what it sends."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, check_batch, read_header
from penstock.records.relay import Relayed, RelayPlace, place_batch, relayed_by
from penstock.replication.inlet import freeze, left_to_move, retirement_of
from penstock.replication.partition import Partition
from penstock.services.relay.pump import Moved, Pump, prepared, resume_at
from penstock.storage.log import Log
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
    assert resume_at(a_log(1, 1, 1, 1, 3, 3, 3), 2, place) == offset


def test_what_is_gone_from_the_source_is_not_asked_for() -> None:
    log = a_log(1, 1, 1, 1)
    log.advance_start(3)
    assert resume_at(log, 1, None) == 3


def test_batches_say_where_they_come_from_and_control_records_are_only_counted() -> None:
    log = opened(MemFiles()).log
    append(log, a_batch([NOW_MS] * 2), epoch=4)
    append(log, place_batch(9, RelayPlace(1, 1), NOW_MS), epoch=4)
    append(log, a_batch([NOW_MS] * 3), epoch=5)
    data = bytearray(log.active.file.pread(log.active.size, 0))
    chunk = prepared(data, 7, 1, 2, RelayPlace(4, 0))
    assert (chunk.next_offset, chunk.place, chunk.lost) == (6, RelayPlace(5, 4), [])
    headers = headers_of(chunk.batches)
    assert [relayed_by(one) for one in headers] == [Relayed(7, 4, 1, 1), Relayed(7, 5, 2, 4)]
    assert [one.is_control for one in headers] == [True, False]


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
            [range(3, 4)],
            [Relayed(7, 1, 1, 1, skips=True), Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)],
        ),
        (RelayPlace(1, 1), [], [Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)]),
        (
            None,
            [],
            [Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)],
        ),  # to a target that knows nothing all is the beginning
        # Of a leader that was elected uncleanly and is gone: ours of epoch 1 is older, and one of epoch 3 comes next.
        (
            RelayPlace(2, 1),
            [range(4, 5)],
            [Relayed(7, 1, 2, 2), Relayed(7, 2, 2, 2, skips=True), Relayed(7, 3, 3, 3)],
        ),
        (
            RelayPlace(2, 9),
            [],
            [Relayed(7, 1, 2, 2), Relayed(7, 3, 3, 3)],
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
    assert [relayed_by(one) for one in headers_of(chunk.batches)] == sent
    assert [one.is_control for one in headers_of(chunk.batches)] == [one.skips for one in sent]
    state = ProducerState()
    if place is not None:
        state.record(read_header(place_batch(7, place, NOW_MS)), 0)
    for offset, one in enumerate(headers_of(chunk.batches)):
        if state.check_relayed(one) is None:
            state.record(one, offset)
    assert state.relays[7].place == chunk.place == RelayPlace(3, 3)


class Target:
    """Takes batches as a log would; fails when it is told to, before or after it has taken them."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.moved: list[Relayed] = []
        self.troubles: list[str] = []

    async def place(self) -> RelayPlace | None:
        word = self.state.relays.get(2)
        return None if word is None else word.place

    async def deliver(self, batches: bytearray) -> None:
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "before":
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        position = 0
        while position < len(batches):
            header = read_header(batches, position)
            position += header.size_bytes
            if self.state.check_relayed(header) is None:
                self.state.record(header, len(self.moved))
                self.moved.append(relayed_by(header))
        if trouble == "after":
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


class NoSyncer:
    def request(self, partition: Partition) -> None:
        raise AssertionError("nothing here is synced")


@pytest.mark.parametrize("troubles", [[], ["before"], ["after"], ["after", "before", "after"]])
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
        loop.spawn("source", Pump(loop, None, partition, target, moved).run())
        for number in range(1, 6):
            write()
            loop.run_until(lambda: retirement_of(partition).moved >= partition.log.end_offset)
            assert [one.first for one in target.moved] == list(range(number))
            assert left_to_move(partition) == 0
    assert moved.records == 5 - troubles.count("after"), "an answer that is lost tells nothing"
    assert moved.size_bytes == moved.records * len(a_batch())
