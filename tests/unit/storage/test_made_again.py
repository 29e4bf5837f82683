"""Partitions and topics that are made again under a name or number that was there before."""

import json
import random

import pytest
from tests.unit.storage.logs import Settings, a_batch, append, sync
from tests.unit.storage.test_data_dir import ID, OTHER_ID, PATH, a_data_dir

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.storage.data_dir import DataDir
from penstock.storage.layout import PARTITION_FILE, RECOVERY_POINT_FILE, partition_dir
from penstock.storage.log import Log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles


def an_old_partition(data_dir: DataDir, records: int, *, emptied: bool) -> None:
    """A partition of which `records` were written, by an idempotent producer, and all moved away and deleted."""
    old = data_dir.open_partition("orders", ID, 1, Settings()).log
    for sequence in range(records):
        append(old, a_batch(producer=(7, 0, sequence)), epoch=3)
    sync(old, checkpoint=True)
    if emptied:
        old.roll(2_000_000)
        sync(old, checkpoint=True)
        deletion = old.expire(RetentionLimits(0), old.end_offset, 9_000_000_000)
        assert deletion is not None
        deletion.hide()
        deletion.unlink()
        old.start_job().run()
        assert old.start_offset == old.end_offset == records
    old.close()


def forget_first_epoch(files: MemFiles) -> None:
    """As if an earlier version had written it."""
    path = partition_dir(PATH, "orders", 1) / PARTITION_FILE
    fields = json.loads(files.read(path))
    del fields["first_epoch"]
    files.write_atomically(path, json.dumps(fields).encode())


@pytest.mark.parametrize("earlier_version", [False, True])
@pytest.mark.parametrize(("records", "emptied"), [(0, False), (2, False), (5, False), (7, False), (5, True)])
def test_a_partition_that_is_made_again_begins_behind_the_one_before_it(
    records: int, emptied: bool, earlier_version: bool
) -> None:
    """Also where the old one's files are still there: the broker was away when it was removed, or its disk failed."""
    files = MemFiles()
    data_dir = a_data_dir(files)
    an_old_partition(data_dir, records, emptied=emptied)
    if earlier_version:
        forget_first_epoch(files)

    def opened() -> Log:
        return data_dir.open_partition("orders", ID, 1, Settings(), first_offset=5, first_epoch=4).log

    for _ in range(2):  # and again after a restart
        new = opened()
        assert (new.start_offset, new.end_offset, new.epochs.latest) == (5, 5, -1)
        assert not len(new.producers)
        new.close()
    new = opened()
    assert append(new, a_batch(producer=(7, 0, 2)), epoch=4) == 5
    sync(new, checkpoint=True)
    new.close()
    if earlier_version:
        forget_first_epoch(files)
    for _ in range(2):
        again = opened()
        assert (again.start_offset, again.end_offset, again.epochs.latest) == (5, 6, 4)
        assert len(again.producers) == 1
        again.close()


def test_nothing_is_opened_where_the_partition_before_cannot_go() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    an_old_partition(data_dir, 5, emptied=True)
    files.fail_next("rename", "*Partition-1", count=1)
    with pytest.raises(StorageError):
        data_dir.open_partition("orders", ID, 1, Settings(), first_offset=5, first_epoch=4)
    new = data_dir.open_partition("orders", ID, 1, Settings(), first_offset=5, first_epoch=4).log
    assert not len(new.producers)


def test_metadata_that_forgot_what_was_removed_takes_no_records() -> None:
    """A broker of an earlier version wrote the topic's record, and left out what it does not know."""
    data_dir = a_data_dir(MemFiles())
    log = data_dir.open_partition("orders", ID, 1, Settings(), first_offset=5, first_epoch=4).log
    append(log, a_batch(), epoch=4)
    sync(log, checkpoint=True)
    log.close()
    again = data_dir.open_partition("orders", ID, 1, Settings()).log
    assert (again.start_offset, again.end_offset) == (5, 6)


def test_a_recovery_point_of_another_topic_is_not_trusted() -> None:
    """A topic was deleted and made again, and a checkpoint of the old one landed in the new one's directory."""
    files = MemFiles()
    data_dir = a_data_dir(files)
    old = data_dir.open_partition("t", OTHER_ID, 0, Settings()).log
    for number in range(8):
        append(old, a_batch(producer=(7, 0, number)))
    old.advance_start(5)
    late = old.sync_job(checkpoint=True).checkpoint
    assert late is not None
    data_dir.discard_topic("t", OTHER_ID)
    new = data_dir.open_partition("t", ID, 0, Settings()).log
    for number in range(12):
        append(new, a_batch(producer=(9, 0, number), padding=number))
    sync(new, checkpoint=True)
    late.write()
    found = DataDir(files.kill(), PATH, random.Random(1)).open_partition("t", ID, 0, Settings())
    assert (found.log.start_offset, found.log.end_offset, found.cut_bytes) == (0, 12, 0)
    assert [producer.producer_id for producer in found.log.producers.copy()] == [9]


def test_a_recovery_point_of_a_version_that_did_not_say_whose_it_is_counts() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    log = data_dir.open_partition("t", ID, 0, Settings()).log
    append(log, a_batch())
    sync(log, checkpoint=True)
    path = partition_dir(PATH, "t", 0) / RECOVERY_POINT_FILE
    fields = json.loads(files.read(path).partition(b" ")[2])
    assert fields.pop("owner") == f"{ID.hex()}-0"
    body = json.dumps(fields).encode()
    files.write_atomically(path, b"%08x %s\n" % (crc32c(body), body))
    found = DataDir(files.kill(), PATH, random.Random(1)).open_partition("t", ID, 0, Settings())
    assert (found.log.end_offset, found.scanned_bytes) == (1, 0)
