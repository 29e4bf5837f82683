"""Every file of a data directory says its version: what a newer release wrote is refused and left as it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.logs import DIRECTORY, NOW_MS, a_batch, append, opened, sync

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.core.formats import NewerFormatError
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.compaction.checkpoint import Cleaned, save_cleaned
from penstock.storage.high_watermarks import HighWatermarks, Mark
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy
from penstock.storage.producer_snapshot import dump_producers, encode_producers, load_producers
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import start_over
from penstock.testing.mem_files import MemFiles

REFUSED = r"has version \d+, and this release reads up to \d+: start the newer release that wrote it"
PRODUCER = ProducerCopy(7, 3, 1700, (AppendedBatch(0, 4, 10, 14, 1600), AppendedBatch(5, 6, 15, 16, 1700)))


def a_log_with_everything() -> MemFiles:
    """One file of each kind that a log keeps beside its segments."""
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch(producer=(7, 0, 0)))
    log.cleaned = Cleaned(offset=1)
    save_cleaned(files, DIRECTORY, log.cleaned)
    sync(log, checkpoint=True)
    log.close()
    return files


def of_version(version: int) -> dict[str, Callable[[bytes], bytes]]:
    """What such a file is in another version: by the start of its name or its end."""

    def text(data: bytes) -> bytes:
        _, _, rest = data.rpartition(b"crc32c ")[0].partition(b"\n")
        told = b"%d\n%s and what we know nothing of\n" % (version, rest)
        return told + b"crc32c %08x\n" % crc32c(told)

    def point(data: bytes) -> bytes:
        body = json.dumps(json.loads(data.partition(b" ")[2]) | {"version": version}).encode()
        return b"%08x %s\n" % (crc32c(body), body)

    return {
        "recovery-point": point,
        "leader-epoch-checkpoint": text,
        "cleaner-offset-checkpoint": text,
        ".snapshot": lambda data: version.to_bytes(2) + data[2:],
    }


def contents(files: MemFiles, directory: Path = DIRECTORY) -> dict[str, bytes]:
    return {name: files.read(directory / name) for name in files.list_dir(directory)}


@pytest.mark.parametrize("name", of_version(2))
def test_what_a_newer_release_wrote_keeps_a_log_closed_and_stays_as_it_is(name: str) -> None:
    files = a_log_with_everything()
    (path,) = (DIRECTORY / file_name for file_name in files.list_dir(DIRECTORY) if file_name.endswith(name))
    files.write_atomically(path, of_version(2)[name](files.read(path)))
    before = contents(files)
    for _ in range(2):
        with pytest.raises(NewerFormatError, match=REFUSED):
            opened(files)
    assert contents(files) == before


def test_a_log_that_was_to_start_over_is_not_thrown_away_for_a_mark_of_a_newer_release() -> None:
    files = a_log_with_everything()
    log = opened(files).log
    mark = DIRECTORY / "00000000000000000009.anew"
    files.write_atomically(mark, of_version(2)[".snapshot"](dump_producers([PRODUCER])))
    log.close()
    before = contents(files)
    with pytest.raises(NewerFormatError, match=REFUSED):
        opened(files)
    assert contents(files) == before
    files.write_atomically(mark, dump_producers([PRODUCER]))
    log = opened(files).log
    assert (log.start_offset, log.producers.copy()) == (9, [PRODUCER])
    assert start_over(log, 20, ProducerState.of([PRODUCER])).producers.copy() == [PRODUCER]


def test_a_snapshot_is_kafkas_layout_with_the_rest_behind_it() -> None:
    relay = ProducerCopy(1 << 62 | 5, 0, 1, (AppendedBatch(0, 0, 0, 0, 1),))
    data = dump_producers([PRODUCER, relay])
    entry = "000000000000000700030000000600000000000000100000000100000000000006a4"
    no_transaction = "ffffffffffffffffffffffff"
    assert data.startswith(b"\0\1" + crc32c(data[6:]).to_bytes(4))
    assert data[6:].startswith(bytes.fromhex("00000001" + entry + no_transaction))
    assert load_producers(data).copy() == [PRODUCER, relay]


def test_a_snapshot_that_kafka_wrote_tells_one_batch_of_each_producer() -> None:
    nothing_yet = ProducerCopy(8, 0, 5, ())
    data = dump_producers([PRODUCER, nothing_yet])[: 2 + 4 + 4 + 2 * 46]
    data = data[:2] + crc32c(data[6:]).to_bytes(4) + data[6:]
    last = PRODUCER.batches[-1]
    assert load_producers(data).copy() == [PRODUCER._replace(batches=(last,)), nothing_yet]


def test_a_snapshot_of_a_release_that_named_no_version_is_read() -> None:
    assert load_producers(encode_producers([PRODUCER])).copy() == [PRODUCER]


def test_no_snapshot_has_a_version_below_one() -> None:
    with pytest.raises(StorageError, match="wrong checksum") as refused:
        load_producers(bytes(2) + dump_producers([PRODUCER])[2:])
    assert not isinstance(refused.value, NewerFormatError), "it is damaged, and rebuilt from the log"


def test_what_a_snapshot_has_beside_kafkas_part_has_a_version_too() -> None:
    data = bytearray(dump_producers([PRODUCER]))
    ours = 2 + 4 + 4 + 46
    assert data[ours : ours + 2] == b"\0\1"
    data[ours + 1] = 4
    data[2:6] = crc32c(data[6:]).to_bytes(4)
    with pytest.raises(NewerFormatError, match=REFUSED):
        load_producers(bytes(data))


def test_a_recovery_point_without_a_version_is_read() -> None:
    point = RecoveryPoint(0, 1, 0, 70, 0, NOW_MS, 1, 0, "owner")
    fields = json.loads(point.dump().partition(b" ")[2])
    assert fields.pop("version") == 1
    body = json.dumps(fields).encode()
    assert RecoveryPoint.parse(b"%08x %s\n" % (crc32c(body), body)) == point


def test_high_watermarks_of_a_newer_release_are_not_written_over_and_older_ones_are_read() -> None:
    files, path, topic = MemFiles(), Path("/data/high-watermarks.json"), bytes(16)
    files.make_dirs(path.parent)
    marks = HighWatermarks(files, path.parent)
    marks.save({(topic, 0): Mark(5, 1)})
    known = json.loads(files.read(path))
    assert HighWatermarks(files, path.parent).of(topic, 0) == Mark(5, 1)
    files.write_atomically(path, json.dumps(known | {"version": 2}).encode())
    for use in (
        lambda watermarks: watermarks.of(topic, 0),
        lambda watermarks: watermarks.save({(topic, 0): Mark(9, 1)}),
    ):
        with pytest.raises(NewerFormatError, match=REFUSED):
            use(HighWatermarks(files, path.parent))
    assert json.loads(files.read(path)) == known | {"version": 2}
    files.write_atomically(path, json.dumps(known["marks"]).encode())
    assert HighWatermarks(files, path.parent).of(topic, 0) == Mark(5, 1)
