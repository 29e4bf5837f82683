"""How far each reader may see, and whom a limit wakes when it moves."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, append, opened

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.replication import limits as module
from penstock.replication.limits import PLENTY, Limits, Reader
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.storage.replicated import end_at, truncate
from penstock.testing.mem_files import MemFiles

SIZE = len(a_batch())
CONSUMERS = (Reader.READ_UNCOMMITTED, Reader.READ_COMMITTED)
READERS = (*CONSUMERS, Reader.BROKER, Reader.FOLLOWER)  # relays see what is stable, also where it is retired


def a_log(count: int) -> Log:
    log = opened(MemFiles()).log
    for _ in range(count):
        append(log, a_batch())
    return log


def seen(limits: Limits) -> dict[Reader, int]:
    return {reader: limits.for_reader(reader).offset for reader in READERS}


def seen_by(uncommitted: int, committed: int, broker: int, follower: int) -> dict[Reader, int]:
    return dict(zip(READERS, (uncommitted, committed, broker, follower), strict=True))


def hold_stable(limits: Limits, offset: int | None) -> None:
    """As if a transaction had begun there, and none before it; None: it has ended, for good."""
    producers = limits._log.producers
    producers.clear()
    if offset is not None:
        producers.transactions.add([(7, 0, offset, -1)])
    limits.look_again()


class Waiter:
    def __init__(self) -> None:
        self.told: list[object] = []

    def advanced(self, added_bytes: int) -> None:
        self.told.append(added_bytes)

    def committed(self) -> None:
        self.told.append("committed")

    def failed(self, code: ErrorCode, message: str) -> None:
        self.told.append(code)


def all_waiting(limits: Limits) -> dict[Reader, Waiter]:
    waiters = {reader: Waiter() for reader in READERS}
    for reader, waiter in waiters.items():
        limits.wait(reader, waiter)
    return waiters


def told(waiters: dict[Reader, Waiter]) -> dict[Reader, list[object]]:
    """Since it was last asked."""
    found = {reader: waiter.told for reader, waiter in waiters.items() if waiter.told}
    for waiter in waiters.values():
        waiter.told = []
    return found


def test_a_log_that_was_just_opened_is_committed_as_far_as_anybody_knows() -> None:
    assert seen(Limits(a_log(3))) == seen_by(3, 3, 3, 3)


def test_followers_see_what_is_appended_all_others_what_is_committed() -> None:
    log = a_log(2)
    limits = Limits(log)
    append(log, a_batch())
    append(log, a_batch())
    assert seen(limits) == seen_by(2, 2, 2, 4)
    limits.move(end_at(log, 3))
    assert seen(limits) == seen_by(3, 3, 3, 4)


def test_a_retired_partition_shows_its_consumers_no_more_than_its_ceiling() -> None:
    log = a_log(5)
    limits = Limits(log)
    limits.hold_readers(3)
    assert seen(limits) == seen_by(3, 3, 5, 5)
    assert limits.readable == LogEnd(3, 0, 3 * SIZE)
    append(log, a_batch())
    limits.move(log.end())
    assert seen(limits) == seen_by(3, 3, 6, 6)
    limits.hold_readers(None)
    assert seen(limits) == seen_by(6, 6, 6, 6)


def test_an_open_transaction_holds_back_those_who_read_committed_and_compaction() -> None:
    log = a_log(5)
    limits = Limits(log)
    hold_stable(limits, 2)
    assert seen(limits) == seen_by(5, 2, 5, 5)
    assert limits.last_stable == limits.for_reader(Reader.RELAY) == LogEnd(2, 0, 2 * SIZE)
    hold_stable(limits, 4)  # it has ended, and the next one began there
    assert seen(limits) == seen_by(5, 4, 5, 5)
    hold_stable(limits, None)
    assert seen(limits) == seen_by(5, 5, 5, 5)


@pytest.mark.parametrize(
    ("retired", "unstable", "expected"),
    [
        (3, 4, seen_by(3, 3, 5, 5)),
        (4, 3, seen_by(4, 3, 5, 5)),
        (3, 3, seen_by(3, 3, 5, 5)),
        (7, 8, seen_by(5, 5, 5, 5)),  # beyond what is committed they hold nobody back yet
    ],
)
@pytest.mark.parametrize("retired_first", [True, False])
def test_ceilings_compose(
    retired: int, unstable: int, expected: dict[Reader, int], retired_first: bool
) -> None:
    limits = Limits(a_log(5))
    if retired_first:
        limits.hold_readers(retired)
    hold_stable(limits, unstable)
    if not retired_first:
        limits.hold_readers(retired)
    assert seen(limits) == expected
    assert limits.last_stable.offset == min(unstable, 5)  # compaction does not ask who is retired


def test_a_ceiling_is_put_up_before_the_log_gets_there() -> None:
    log = a_log(2)
    limits = Limits(log)
    limits.hold_readers(4)
    for _ in range(3):
        append(log, a_batch())
    limits.move(end_at(log, 3))
    assert seen(limits) == seen_by(3, 3, 3, 5)
    limits.move(log.end())
    assert seen(limits) == seen_by(4, 4, 5, 5)


def test_a_ceiling_stays_where_it_is_when_the_log_loses_its_end_and_grows_again() -> None:
    log = a_log(5)
    limits = Limits(log)
    limits.hold_readers(3)
    truncate(log, 2)
    limits.move(log.end())
    assert seen(limits) == seen_by(2, 2, 2, 2)
    larger = a_batch(padding=50)
    append(log, larger)
    append(log, a_batch())
    limits.move(log.end())
    assert seen(limits) == seen_by(3, 3, 4, 4)
    assert limits.readable == LogEnd(3, 2, len(larger))  # a cut begins a new segment


def test_a_log_that_is_opened_anew_has_its_limits_in_other_places() -> None:
    limits = Limits(a_log(5))
    limits.hold_readers(3)
    anew = opened(MemFiles()).log
    for number in range(5):
        if number == 2:
            anew.roll(NOW_MS)
        append(anew, a_batch())
    limits.replace_log(anew)
    assert limits.readable == LogEnd(3, 2, SIZE)
    assert limits.for_reader(Reader.FOLLOWER) == anew.end()
    limits.replace_log(a_log(2))
    assert seen(limits) == seen_by(2, 2, 2, 2)


def test_a_read_that_fails_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(3)
    limits = Limits(log)
    append(log, a_batch())
    append(log, a_batch())

    def fails(log: Log, offset: int) -> LogEnd:
        raise StorageError("Input/output error")

    limits.hold_readers(4)
    before = seen(limits)
    with monkeypatch.context() as failing:
        failing.setattr(module, "end_at", fails)
        for change in (
            lambda: limits.move(log.end()),
            lambda: limits.hold_readers(2),
            lambda: limits.replace_log(a_log(9)),
        ):
            with pytest.raises(StorageError):
                change()
            assert seen(limits) == before
    limits.move(log.end())
    assert seen(limits) == seen_by(4, 4, 5, 5)


def test_who_waits_is_told_how_much_was_added_and_others_are_left_alone() -> None:
    log = a_log(1)
    limits = Limits(log)
    waiters = all_waiting(limits)
    append(log, a_batch())
    append(log, a_batch())
    limits.move(log.end())
    assert told(waiters) == {reader: [2 * SIZE] for reader in (*CONSUMERS, Reader.BROKER)}
    limits.move(log.end())
    assert not told(waiters)
    limits.move(end_at(log, 1))
    assert not told(waiters)
    limits.wake(Reader.FOLLOWER)
    assert told(waiters) == {Reader.FOLLOWER: [PLENTY]}


def test_from_one_segment_to_the_next_it_is_enough_for_everybody() -> None:
    """What was left of the first is not counted: nobody must wait on for what is there."""
    log = a_log(1)
    limits = Limits(log)
    waiters = all_waiting(limits)
    append(log, a_batch())
    log.roll(NOW_MS)
    append(log, a_batch())
    limits.move(log.end())
    assert told(waiters)[Reader.READ_UNCOMMITTED] == [PLENTY]


def test_a_move_wakes_those_only_whose_limit_moved() -> None:
    log = a_log(2)
    limits = Limits(log)
    limits.hold_readers(2)
    waiters = all_waiting(limits)
    append(log, a_batch())
    limits.move(log.end())
    assert set(told(waiters)) == {Reader.BROKER}
    limits.hold_readers(None)
    assert set(told(waiters)) == set(CONSUMERS)
    hold_stable(limits, 3)
    append(log, a_batch())
    limits.move(log.end())
    assert set(told(waiters)) == {Reader.READ_UNCOMMITTED, Reader.BROKER}
    hold_stable(limits, None)
    assert told(waiters) == {Reader.READ_COMMITTED: [SIZE]}


def test_who_left_is_not_told() -> None:
    log = a_log(1)
    limits = Limits(log)
    waiters = all_waiting(limits)
    for reader, waiter in waiters.items():
        limits.leave(reader, waiter)
        limits.leave(reader, waiter)  # a second time is nothing
    append(log, a_batch())
    limits.move(log.end())
    limits.wake(*Reader)
    assert not told(waiters)


def test_acknowledgements_wait_for_the_high_watermark_and_leave_before_readers_are_woken() -> None:
    log = a_log(1)
    limits = Limits(log)
    limits.hold_readers(1)  # which does not concern producers
    reader = Waiter()
    limits.wait(Reader.BROKER, reader)
    first, second = Waiter(), Waiter()
    first.told = second.told = reader.told
    append(log, a_batch())
    append(log, a_batch())
    limits.wait_for_commit(1, first)
    limits.wait_for_commit(2, second)
    limits.move(end_at(log, 2))
    assert reader.told == ["committed", SIZE]
    assert limits.waiting_for_commit == 1
    assert limits.turn_away() == [second]
    limits.move(log.end())
    assert reader.told == ["committed", SIZE, SIZE]
