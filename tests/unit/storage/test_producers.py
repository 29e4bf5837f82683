import pytest
from tests.unit.storage.logs import NOW_MS, a_batch

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.limits import PRODUCER_QUIET_MS_MIN
from penstock.records.batch import BatchHeader, read_header
from penstock.storage import producers
from penstock.storage.producer_snapshot import dump_producers, load_producers
from penstock.storage.producers import ProducerState

SEQUENCE_MAX = 2**31 - 1


def header(sequence: int, *, epoch: int = 0, count: int = 1, time: int = NOW_MS, pid: int = 9) -> BatchHeader:
    return read_header(a_batch([time] * count, producer=(pid, epoch, sequence)))


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 100
    for batch_header in headers:
        assert state.check(batch_header) is None
        state.record(batch_header, offset)
        offset += batch_header.last_offset_delta + 1
    return state


def refusal(state: ProducerState, batch_header: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        state.check(batch_header)
    return refused.value.code


def test_a_producer_nobody_knows_may_begin_anywhere() -> None:
    assert ProducerState().check(header(41)) is None


def test_sequences_follow_each_other() -> None:
    state = state_after(header(0, count=3))
    assert state.check(header(3)) is None
    assert refusal(state, header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, header(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_a_coordinator_wrote_for_it_says_nothing_of_its_sequences() -> None:
    state = state_after(header(0, count=3))
    state.record(header(-1), 103)
    assert state.check(header(3)) is None
    again = load_producers(dump_producers(state.copy()))
    assert again.check(header(3)) is None


@pytest.mark.parametrize(("epoch", "goes_on_with"), [(0, 3), (1, 0)])
def test_what_is_recalled_does_not_need_batches_of_its_own(epoch: int, goes_on_with: int) -> None:
    """A log that was cut may have nothing of a producer but what a coordinator wrote for it."""
    known = state_after(header(0, count=3)).copy()
    state = ProducerState()
    state.record(header(-1, epoch=epoch), 103)
    state.recall(known, 104)
    assert state.check(header(goes_on_with, epoch=epoch)) is None
    if not epoch:
        assert refusal(state, header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("last", [SEQUENCE_MAX, SEQUENCE_MAX - 1])
def test_sequences_wrap_to_zero(last: int) -> None:
    state = state_after(header(last - 1, count=2))
    follower = 0 if last == SEQUENCE_MAX else SEQUENCE_MAX
    assert state.check(header(follower)) is None
    assert refusal(state, header(follower + 1 if follower == 0 else 0)) == (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_a_batch_may_itself_wrap() -> None:
    wrapping = header(SEQUENCE_MAX, count=3)
    assert wrapping.last_sequence == 1
    state = state_after(wrapping)
    assert state.check(header(2)) is None
    repeat = state.check(wrapping)
    assert repeat is not None
    assert (repeat.first_offset, repeat.last_offset) == (100, 102)


def test_a_repeat_among_the_last_five_gets_its_old_offsets() -> None:
    sent = [header(sequence) for sequence in range(7)]
    state = state_after(*sent)
    for sequence in range(2, 7):
        repeat = state.check(sent[sequence])
        assert repeat is not None
        assert (repeat.first_offset, repeat.last_offset) == (100 + sequence, 100 + sequence)
    assert refusal(state, sent[1]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_half_a_repeat_is_none() -> None:
    state = state_after(header(0, count=3))
    assert refusal(state, header(0, count=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_fences_the_old() -> None:
    state = state_after(header(0), header(1))
    assert refusal(state, header(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    bumped = header(0, epoch=1)
    assert state.check(bumped) is None
    state.record(bumped, 102)
    assert refusal(state, header(2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, header(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(header(1, epoch=1)) is None


def test_producers_do_not_disturb_each_other() -> None:
    state = state_after(header(0, pid=1), header(0, pid=2), header(1, pid=1))
    assert state.check(header(1, pid=2)) is None
    assert state.check(header(2, pid=1)) is None


def test_silent_producers_are_forgotten() -> None:
    state = state_after(header(0, pid=1), header(0, pid=2))
    state.expire(now_ms=10_000, quiet_ms_max=1000)
    state.record(header(1, pid=2), 50)
    state.expire(now_ms=10_999, quiet_ms_max=1000)
    assert [copy.producer_id for copy in state.copy()] == [1, 2]
    state.expire(now_ms=11_000, quiet_ms_max=1000)
    assert [copy.producer_id for copy in state.copy()] == [2]
    assert state.check(header(77, pid=1)) is None


def test_old_record_times_do_not_make_a_producer_silent() -> None:
    state = state_after(header(0, pid=1, time=1))
    state.expire(now_ms=10**12, quiet_ms_max=1000)
    assert state.check(header(0, pid=1)) is not None, "its repeat must be recognised"


def test_it_survives_the_file_and_damage_is_noticed() -> None:
    state = state_after(*(header(sequence, epoch=3) for sequence in range(6)), header(0, pid=1))
    data = dump_producers(state.copy())
    assert load_producers(data).copy() == state.copy()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        with pytest.raises(StorageError):
            load_producers(bytes(flipped))
    for length in range(len(data)):
        with pytest.raises(StorageError):
            load_producers(data[:length])


DAY_MS = 86_400_000


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> ProducerState:
    """As many as a partition remembers."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 10)
    return state_after(*(header(0, pid=pid) for pid in range(10)))


def test_of_too_many_new_ones_are_refused_and_known_ones_go_on(crowded: ProducerState) -> None:
    assert refusal(crowded, header(0, pid=10)) == ErrorCode.POLICY_VIOLATION
    assert crowded.refused == 1
    assert crowded.check(header(1, pid=9)) is None
    assert crowded.check(header(0, pid=9)) is not None, "a repeat"


def test_of_many_those_that_were_quiet_for_longest_go_first_and_never_before_their_retries(
    crowded: ProducerState,
) -> None:
    crowded.expire(0, DAY_MS)
    for pid in range(3, 10):
        crowded.record(header(1, pid=pid), 200 + pid)
    crowded.expire(PRODUCER_QUIET_MS_MIN - 1, DAY_MS)
    assert len(crowded) == 10, "any of them may send its last batch again"
    crowded.expire(PRODUCER_QUIET_MS_MIN, DAY_MS)
    assert [copy.producer_id for copy in crowded.copy()] == list(range(3, 10))
    assert crowded.refused == 0
    assert crowded.check(header(0, pid=10)) is None
    crowded.expire(2 * PRODUCER_QUIET_MS_MIN, DAY_MS)
    assert len(crowded) == 5, "room is made for half of them"


def test_few_are_remembered_for_as_long_as_the_settings_say(crowded: ProducerState) -> None:
    few = state_after(*(header(0, pid=pid) for pid in range(5)))
    few.expire(0, DAY_MS)
    few.expire(DAY_MS - 1, DAY_MS)
    assert len(few) == 5
    few.expire(DAY_MS, DAY_MS)
    assert len(few) == 0


def test_a_copy_stays_as_it_is_while_producers_go_on() -> None:
    state = state_after(header(0), header(1))
    copied = state.copy()
    state.record(header(2), 102)
    assert [batch.first_sequence for batch in copied[0].batches] == [0, 1]
    assert [batch.first_sequence for batch in state.copy()[0].batches] == [0, 1, 2]


def test_what_they_did_below_an_offset_is_told_a_few_at_a_time() -> None:
    state = state_after(*(header(0, pid=pid) for pid in (7, 3, 9, 5)))  # at 100, 101, 102, 103
    first, following = state.copy_below(103, 0, 2)
    assert [copy.producer_id for copy in first] == [3]  # 5 wrote behind it
    rest, end = state.copy_below(103, following, 3)
    assert [copy.producer_id for copy in rest] == [7, 9]
    assert end == producers.NO_MORE


def test_a_clock_that_was_ahead_keeps_nobody_for_longer() -> None:
    state, day_ms = state_after(header(0, pid=1)), 24 * 60 * 60 * 1000
    state.expire(400 * day_ms, day_ms)
    state.record(header(0, pid=2), 2)
    for day in (30, 31, 32):
        state.expire(day * day_ms, day_ms)
    assert state.copy() == []
