"""What a moved batch says of where it comes from."""

import pytest

from penstock.core.limits import RELAYED_DISTANCE_MAX
from penstock.records.batch import check_batch, read_header
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.records.relay import (
    RELAY_IDS,
    Relayed,
    RelayPlace,
    position_batch,
    producer_fields,
    relay_place,
    relayed_by,
    retired_source,
    stamp_relayed,
)

SEQUENCES = 2**31


def a_batch(count: int = 3, epoch: int = 7) -> memoryview:
    records = [Record(offset=i, timestamp=5, key=b"k", value=b"%d" % i) for i in range(count)]
    options = BatchOptions(producer_id=9, producer_epoch=1, base_sequence=4, leader_epoch=epoch)
    return memoryview(build_batch(records, options))


@pytest.mark.parametrize(
    "distance", [0, 1, SEQUENCES - 2, SEQUENCES - 1, SEQUENCES, 5 * SEQUENCES + 3, RELAYED_DISTANCE_MAX - 2]
)
def test_the_whole_place_is_in_every_batch_also_where_sequences_would_wrap(distance: int) -> None:
    batch = a_batch(3, epoch=2**31 - 1)
    header = stamp_relayed(batch, 2**24 - 1, 2**31 - 1, distance)
    assert check_batch(batch) == header
    assert header.producer_id >= RELAY_IDS
    assert relayed_by(header) == Relayed(2**24 - 1, 2**31 - 1, distance, distance + 2)
    assert [record.value for record in read_all(batch)] == [b"0", b"1", b"2"]


def test_a_place_is_said_again_in_a_control_record_that_readers_skip() -> None:
    batch = memoryview(position_batch(retired_source(3), RelayPlace(7, SEQUENCES + 5), 1000))
    header = check_batch(batch)
    assert header.is_control
    assert relayed_by(header).place == RelayPlace(7, SEQUENCES + 5)
    assert list(read_all(batch)) == []


def test_a_place_survives_being_told_as_a_producers() -> None:
    fields = producer_fields(5, 12, 3 * SEQUENCES + 1)
    assert relay_place(*fields) == (5, RelayPlace(12, 3 * SEQUENCES + 1))


@pytest.mark.parametrize(
    ("source", "epoch", "distance"),
    [(2**24, 0, 0), (-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, RELAYED_DISTANCE_MAX + 1)],
)
def test_what_does_not_fit_is_refused(source: int, epoch: int, distance: int) -> None:
    with pytest.raises(ValueError, match="relay"):
        producer_fields(source, epoch, distance)


def test_places_are_ordered_by_epoch_first() -> None:
    assert RelayPlace(1, 100) < RelayPlace(2, 0) < RelayPlace(2, 1)
    assert read_header(a_batch()).producer_id < RELAY_IDS
