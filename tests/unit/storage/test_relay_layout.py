"""What releases before names wrote of relays, to logs and snapshots, is read as it was meant, and written the same."""

import base64
import zlib
from contextlib import nullcontext

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened, sync
from tests.unit.storage.logs import append as append_to

from penstock.core.errors import ApiError
from penstock.records.batch import read_header, stamp
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import iter_batches
from penstock.records.relay import (
    NAMED_IDS,
    RELAY_IDS,
    RelayPlace,
    position_batch,
    retired_source,
    stamp_relayed,
)
from penstock.storage.producer_copy import AppendedBatch
from penstock.storage.producer_snapshot import dump_producers, load_producers
from penstock.storage.producers import ProducerState
from penstock.testing.mem_files import MemFiles

# Two retired partitions, 4 and 5, moved into a third one: by the code of release 0.1.
LOG = zlib.decompress(
    base64.b64decode(
        "eNpjYIADRyBmZiqb/5ANzGUEk/xODig0AwMnVIaBgYkPpIzJgAFIMzEyGcIMYgJiT7BhLhOYYuBCKIY5QMQY4bYzoxsGpFkY"
        "mYxg8qxwF+7bZbEduwtBhjYwMLDDDcXlQpAKG7BhMmufLWVQgGvA5UJmEEsESHAwMAQFwJVzwB1VN3dzGG5HwUOACY+juOCO"
        "2rwtcwEORzVAfcgIDRIsjuIGYkuwOSLff0oj4hdrSIHMAcU3I8xRUMADd8yPyVcr8YYQE9YQAgD7iiYw"
    )
)
SNAPSHOT = zlib.decompress(
    base64.b64decode(
        "eNpjYJwXUPaSgYGBkQECOMEsGA/B5ndy+I8EGBgv6Pq4AMVZUPSB1SFrRgZwBQ4MDEwQPsw4uJb/OABUCxNUHdQWZigGAR4U"
        "GmpLAwMDO6rD2KAYBLhRaKACADpINVw="
    )
)
WRAPPED = 2**31


def check(state: ProducerState) -> None:
    assert list(state.relays.by_source) == [retired_source(4), retired_source(5)]
    four, five = state.relays.by_source.values()
    assert four.places() == (RelayPlace(2, 3), RelayPlace(1, 1))
    assert four.batch == AppendedBatch(3, 3, 12, 12, NOW_MS)
    assert five.places() == (RelayPlace(7, WRAPPED + 6),)
    assert five.batch == AppendedBatch(6, 6, 11, 11, NOW_MS)
    assert not four.is_committed(12)
    assert four.is_committed(13)
    assert four.committed_at == 12


def test_a_snapshot_of_an_earlier_release_has_its_positions() -> None:
    check(load_producers(SNAPSHOT))


def test_a_log_of_an_earlier_release_has_its_positions() -> None:
    state = ProducerState()
    for _, header in iter_batches(LOG):
        state.record(header, header.base_offset)
    check(state)
    assert dump_producers(state.copy()) == SNAPSHOT, "and releases before read what this one writes"


def test_recovery_and_truncation_find_them() -> None:
    files = MemFiles()
    log = opened(files).log
    for position, header in iter_batches(LOG):
        append_to(log, bytearray(LOG[position : position + header.size_bytes]), epoch=3)
    check(log.producers)
    log.write_out()
    log.close()
    again = opened(files).log
    check(again.producers)
    cut = again.truncation(11)
    assert cut is not None
    cut.run()
    again.truncated(cut)
    relays = again.producers.relays.by_source
    assert relays[retired_source(4)].places() == (RelayPlace(2, 3), RelayPlace(1, 1))
    assert relays[retired_source(5)].places() == (RelayPlace(7, WRAPPED + 5),)


def test_moved_batches_are_what_they_were_to_the_byte() -> None:
    def moved(count: int, source: int, epoch: int, number: int) -> bytearray:
        batch = a_batch([NOW_MS] * count)
        stamp_relayed(memoryview(batch), source, epoch, number)
        return batch

    written = bytearray()
    for batch in (
        a_batch([NOW_MS] * 2, producer=(9, 1, 0)),
        moved(3, 4, 1, 0),
        moved(2, 5, 7, 0),
        position_batch(retired_source(4), RelayPlace(1, 3), NOW_MS),
        moved(2, 4, 2, 2),
        position_batch(retired_source(5), RelayPlace(7, WRAPPED + 5), NOW_MS, skips=True),
        moved(1, 5, 7, WRAPPED + 6),
        position_batch(retired_source(4), RelayPlace(2, 3), NOW_MS),
    ):
        offset = sum(header.last_offset_delta + 1 for _, header in iter_batches(written))
        stamp(memoryview(batch), 0, offset, 3)
        assert read_header(batch).base_offset == offset
        written += batch
    assert written == LOG


def unsound(producer_id: int, *, control: bool, sequence: int = 0) -> bytearray:
    options = BatchOptions(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        control=control,
        transactional=control,
    )
    builder = BatchBuilder(options)
    builder.append(b"", key=bytes(4), timestamp=NOW_MS)
    return builder.build()


@pytest.mark.parametrize(
    ("batch", "refused"),
    [
        (unsound(RELAY_IDS, control=True, sequence=-1), True),  # no number
        (unsound(RELAY_IDS, control=False, sequence=-1), True),
        (unsound(NAMED_IDS, control=True), True),  # a position that says no place
        (unsound(RELAY_IDS, control=False), False),
    ],
)
def test_what_nobody_could_remember_of_a_relay_is_refused_before_it_is_in_the_log(
    batch: bytearray, refused: bool
) -> None:
    """Every start would read it, and every checkpoint keep it."""
    files = MemFiles()
    log = opened(files).log
    with pytest.raises(ApiError, match="relay") if refused else nullcontext():
        append_to(log, batch)
    assert (log.end_offset, log.size_bytes == 0) == (int(not refused), refused)
    append_to(log, a_batch())
    sync(log, checkpoint=True)
    assert opened(files).log.end_offset == log.end_offset
