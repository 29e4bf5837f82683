import json
import random
from pathlib import Path

import pytest
from tests.unit.storage.logs import Settings, a_batch, append, sync

from penstock.core.crc32c import crc32c
from penstock.core.errors import StorageError
from penstock.core.files import LockedError
from penstock.storage.data_dir import DataDir
from penstock.storage.layout import CLEANER_FILE, PARTITION_FILE, RECOVERY_POINT_FILE, partition_dir
from penstock.storage.log import Log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

PATH = Path("/data")
CLUSTER = "jGgJ5bCoTq2IOpnUUDwfsw"
ID, OTHER_ID = bytes(range(16)), bytes(16)


def a_data_dir(files: MemFiles) -> DataDir:
    made = DataDir(files, PATH, random.Random(1))
    made.open()
    return made


def test_one_process_at_a_time() -> None:
    files = MemFiles()
    first = a_data_dir(files)
    with pytest.raises(LockedError):
        a_data_dir(files)
    first.close(clean=True)
    a_data_dir(files)


def test_the_cleaner_checkpoint_of_earlier_versions_goes() -> None:
    files = MemFiles()
    a_data_dir(files).close(clean=True)
    files.write_atomically(PATH / CLEANER_FILE, b"0\n1\norders 0 77\n")
    own = partition_dir(PATH, "orders", 0)
    files.make_dirs(own)
    files.write_atomically(own / CLEANER_FILE, b"its own")
    a_data_dir(files)
    assert not files.exists(PATH / CLEANER_FILE)
    assert files.read(own / CLEANER_FILE) == b"its own"


def test_the_identity_is_made_once_and_kept() -> None:
    files = MemFiles()
    identity = a_data_dir(files).identity(3, CLUSTER)
    assert (identity.cluster_id, identity.node_id, len(identity.directory_id)) == (CLUSTER, 3, 22)
    files = files.crash(random.Random(1))
    assert DataDir(files, PATH, random.Random(2)).identity(3, CLUSTER) == identity


def test_another_nodes_directory_is_refused() -> None:
    data_dir = a_data_dir(MemFiles())
    data_dir.identity(3, CLUSTER)
    with pytest.raises(StorageError, match="belongs to node 3, not 4"):
        data_dir.identity(4, CLUSTER)


def test_another_clusters_directory_is_refused() -> None:
    data_dir = a_data_dir(MemFiles())
    data_dir.identity(3, CLUSTER)
    with pytest.raises(StorageError, match="belongs to cluster"):
        data_dir.identity(3, "another")


def test_an_unreadable_identity_is_not_replaced() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    data_dir.identity(3, CLUSTER)
    files.write_atomically(PATH / "identity.json", b"{}")
    with pytest.raises(StorageError, match="unreadable"):
        data_dir.identity(3, CLUSTER)


def test_a_clean_stop_is_remembered_once() -> None:
    files = MemFiles()
    first = a_data_dir(files)
    assert not first.was_clean
    first.close(clean=True)
    files = files.crash(random.Random(1))
    second = a_data_dir(files)
    assert second.was_clean
    files = files.crash(random.Random(1))
    assert not a_data_dir(files).was_clean


def test_a_stop_that_is_not_clean_leaves_no_mark() -> None:
    files = MemFiles()
    a_data_dir(files).close(clean=False)
    assert not a_data_dir(files).was_clean


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_survives_a_power_cut_from_its_first_synced_batch_on(seed: int) -> None:
    files = MemFiles()
    log = a_data_dir(files).open_partition("t", ID, 0, Settings()).log
    append(log, a_batch())
    sync(log)
    data_dir = a_data_dir(files.crash(random.Random(seed)))
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 1


def test_a_directory_of_another_topic_id_is_set_aside() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    append(data_dir.open_partition("t", OTHER_ID, 0, Settings()).log, a_batch())
    log = data_dir.open_partition("t", ID, 0, Settings()).log
    assert log.end_offset == 0
    assert files.list_dir(PATH / "quarantine") == [f"t-0-{OTHER_ID.hex()}.0"]
    # It happens again: nothing that was set aside before is overwritten.
    append(data_dir.open_partition("t", OTHER_ID, 0, Settings()).log, a_batch())
    data_dir.open_partition("t", ID, 0, Settings())
    assert len(files.list_dir(PATH / "quarantine")) == 3


@pytest.mark.parametrize("content", [None, b"", b"no json", b"{}", b"[]", b'"x"'])
def test_a_directory_nobody_owns_is_set_aside(content: bytes | None) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    directory = partition_dir(PATH, "t", 0)
    append(data_dir.open_partition("t", ID, 0, Settings()).log, a_batch())
    if content is None:
        files.unlink(directory / "partition.json")
    else:
        files.write_atomically(directory / "partition.json", content)
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 0
    assert files.list_dir(PATH / "quarantine") == ["t-0-unknown.0"]


def test_a_partition_half_made_is_made_again() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    directory = partition_dir(PATH, "t", 0)
    files.make_dirs(directory)
    files.open(directory / "partition.json.tmp", create=True)
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 0
    assert files.list_dir(PATH / "quarantine") == []


@pytest.mark.parametrize("seed", range(10))
def test_many_new_partitions_are_laid_out_at_once(seed: int) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    data_dir.lay_out("t", ID, range(20))
    data_dir = a_data_dir(files.crash(random.Random(seed)))
    log = data_dir.open_partition("t", ID, 19, Settings()).log
    assert append(log, a_batch()) == 0
    sync(log)
    data_dir = a_data_dir(data_dir.files.crash(random.Random(seed)))  # type: ignore[attr-defined]
    data_dir.lay_out("t", ID, range(40))
    assert data_dir.open_partition("t", ID, 19, Settings()).log.end_offset == 1
    assert data_dir.files.list_dir(PATH / "quarantine") == []


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_while_laying_out_leaves_nothing_in_the_way(seed: int) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    files.fail_next("sync", "/data")
    with pytest.raises(StorageError):
        data_dir.lay_out("t", ID, range(20))
    files.mend()
    data_dir = a_data_dir(files.crash(random.Random(seed)))
    for index in range(20):
        assert data_dir.open_partition("t", ID, index, Settings()).log.end_offset == 0
    assert data_dir.files.list_dir(PATH / "quarantine") == []


def test_strays_are_set_aside_and_named() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    for topic, index in (("a", 0), ("a", 1), ("b", 0)):
        data_dir.open_partition(topic, ID, index, Settings())
    assert data_dir.quarantine_strays({("a", 0)}) == ["a-1", "b-0"]
    assert files.list_dir(PATH / "topics" / "a") == ["Partition-0"]
    assert len(files.list_dir(PATH / "quarantine")) == 2


def test_emptying_the_trash_leaves_room_for_a_topic_on_its_way_there() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    data_dir.open_partition("t", ID, 0, Settings())
    data_dir.discard_topic("t", ID)
    data_dir.empty_trash()
    assert files.exists(PATH / "trash")


def test_a_deleted_topic_leaves_nothing() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    append(data_dir.open_partition("t", ID, 0, Settings()).log, a_batch())
    data_dir.discard_topic("t", ID)
    assert files.list_dir(PATH / "trash") == [f"t-{ID.hex()}.0"]
    assert files.list_dir(PATH / "topics") == []
    data_dir.empty_trash()
    assert files.list_dir(PATH / "trash") == []
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 0


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
    assert [one.producer_id for one in found.log.producers.copy()] == [9]


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
