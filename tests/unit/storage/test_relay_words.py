"""What a log remembers of relays: each record once, whatever is sent again, lost or kept."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch
from tests.unit.storage.test_producers import header as ordinary

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, read_header
from penstock.records.relay import RelayPlace, position_batch, producer_fields, retired_source
from penstock.storage.producer_copy import AppendedBatch
from penstock.storage.producer_snapshot import dump_producers, load_producers
from penstock.storage.producers import ProducerState

PARTITION = 4
SOURCE = retired_source(PARTITION)
SEQUENCES = 2**31


def moved(distance: int, count: int = 1, *, epoch: int = 3) -> BatchHeader:
    return read_header(a_batch([NOW_MS] * count, producer=producer_fields(PARTITION, epoch, distance)))


def check(state: ProducerState, header: BatchHeader) -> AppendedBatch | None:
    return state.check_relayed(header, b"")  # nothing here names its source


def state_after(*headers: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 100
    for header in headers:
        assert check(state, header) is None
        state.record(header, offset)
        offset += header.last_offset_delta + 1
    return state


def refusal(state: ProducerState, header: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        check(state, header)
    return refused.value.code


def test_batches_follow_each_other_and_repeats_are_known_however_old() -> None:
    state = state_after(*(moved(distance, 2) for distance in range(0, 40, 2)))
    assert check(state, moved(40)) is None
    for distance in range(0, 40, 2):
        repeat = check(state, moved(distance, 2))
        assert repeat is not None
        assert repeat.last_offset == 139


def test_a_gap_is_refused() -> None:
    assert refusal(ProducerState(), moved(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state = state_after(moved(0, 3))
    assert refusal(state, moved(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, moved(4, epoch=9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, moved(2, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_source_that_lost_its_end_goes_on_from_further_back_in_its_next_epoch() -> None:
    state = state_after(moved(0, 10))
    assert check(state, moved(5, 2, epoch=4)) is None
    state.record(moved(5, 2, epoch=4), 200)
    assert state.relays.by_source[SOURCE].place == RelayPlace(4, 6)
    assert check(state, moved(7, epoch=4)) is None
    assert check(state, moved(7, 3, epoch=3)) is not None  # of the history that is gone


def test_places_go_on_where_sequences_wrap() -> None:
    state = state_after(moved(0))
    state.record(moved(SEQUENCES - 2, 3), 500)
    assert state.relays.by_source[SOURCE].place == RelayPlace(3, SEQUENCES)
    assert check(state, moved(SEQUENCES + 1)) is None
    assert check(state, moved(SEQUENCES - 2, 3)) is not None
    assert refusal(state, moved(SEQUENCES + 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_words_of_relays_are_in_snapshots() -> None:
    state = state_after(moved(0), moved(1, 3))
    state.record(ordinary(0), 50)
    state.record(moved(SEQUENCES - 2, 3), 500)
    again = load_producers(dump_producers(state.copy()))
    assert len(again) == len(state) == 2
    assert (
        again.relays.by_source[SOURCE].place
        == state.relays.by_source[SOURCE].place
        == RelayPlace(3, SEQUENCES)
    )
    assert check(again, moved(SEQUENCES + 1)) is None
    assert check(again, moved(1, 3)) is not None


def test_a_living_relay_is_never_forgotten_one_that_is_over_is() -> None:
    state = state_after(moved(0))
    for now_ms in (0, 1000, 2000):
        state.expire(now_ms, 100, relays=[SOURCE])
    assert SOURCE in state.relays.by_source
    state.expire(3000, 100)
    assert SOURCE in state.relays.by_source
    state.expire(3100, 100)
    assert SOURCE not in state.relays.by_source


def test_a_place_said_again_moves_the_word_not_the_place() -> None:
    state = state_after(moved(0, 3))
    state.record(read_header(position_batch(SOURCE, RelayPlace(3, 2), NOW_MS)), 900)
    assert state.relays.by_source[SOURCE].place == RelayPlace(3, 2)
    assert state.relays.by_source[SOURCE].batch.first_offset == 900
    assert check(state, moved(3)) is None


def test_clients_may_not_write_as_a_relay() -> None:
    with pytest.raises(ApiError) as refused:
        ProducerState().check(moved(0))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
