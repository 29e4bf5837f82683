import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, fail_once, interrupt
from tests.unit.storage.logs import Settings, a_batch, append, sync

from penstock.core.errors import DiskFailedError, DiskFullError, StorageError
from penstock.core.files import LockedError
from penstock.core.formats import NewerFormatError
from penstock.storage.data_dir import DataDir
from penstock.storage.data_format import FORMAT, UnusableError, check_data_dir
from penstock.storage.layout import CLEANER_FILE, partition_dir
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


def test_the_format_is_written_down_and_a_newer_one_is_refused() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    data_dir.identity(3, CLUSTER)
    fields = json.loads(files.read(PATH / "identity.json"))
    assert fields["format"] == FORMAT
    files.write_atomically(PATH / "identity.json", json.dumps(fields | {"format": FORMAT + 1}).encode())
    for use in (lambda: check_data_dir(files, PATH), lambda: data_dir.identity(3, CLUSTER)):
        with pytest.raises(UnusableError, match=f"has format {FORMAT + 1}, and this version reads up to"):
            use()
    del fields["format"]  # as versions before wrote it
    files.write_atomically(PATH / "identity.json", json.dumps(fields).encode())
    check_data_dir(files, PATH)
    with pytest.raises(StorageError, match="belongs to node 3, not 4"):
        data_dir.identity(4, CLUSTER)
    assert "format" not in json.loads(files.read(PATH / "identity.json")), "it is not ours to raise"
    assert data_dir.identity(3, CLUSTER).node_id == 3
    assert json.loads(files.read(PATH / "identity.json"))["format"] == FORMAT, "this release writes to it now"


def test_a_partition_of_a_newer_release_is_neither_opened_nor_moved_aside() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    append(data_dir.open_partition("t", ID, 0, Settings()).log, a_batch())
    path = partition_dir(PATH, "t", 0) / "partition.json"
    fields = json.loads(files.read(path))
    files.write_atomically(path, json.dumps(fields | {"version": 2, "topic_id": "?"}).encode())
    before = {name: files.read(path.parent / name) for name in files.list_dir(path.parent)}
    for topic_id in (ID, bytes(16)):
        with pytest.raises(
            NewerFormatError, match="has version 2, and this release reads up to 1: start the"
        ):
            data_dir.open_partition("t", topic_id, 0, Settings())
    assert data_dir.quarantine_strays(set()) == []
    assert {name: files.read(path.parent / name) for name in files.list_dir(path.parent)} == before
    del fields["version"]  # as releases before wrote it
    files.write_atomically(path, json.dumps(fields).encode())
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 1


def test_a_directory_of_somebody_else_is_refused_and_one_in_the_making_is_not() -> None:
    files = MemFiles()
    check_data_dir(files, PATH)
    a_data_dir(files).close(clean=False)  # killed before it had an identity
    for name in ("metadata.db", "metadata.db-wal", "identity.json.tmp", "lost+found"):
        files.write_atomically(PATH / name, b"")
    check_data_dir(files, PATH)
    files.make_dirs(PATH / "topics" / "orders")
    with pytest.raises(UnusableError, match=r"holds partitions, but no identity.json"):
        check_data_dir(files, PATH)
    files.remove_tree(PATH / "topics" / "orders")
    for name in ("meta.properties", "orders-0", "README", "x"):
        files.write_atomically(PATH / name, b"")
    with pytest.raises(UnusableError, match=r"it holds README, meta.properties, orders-0 … and no identity"):
        check_data_dir(files, PATH)


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


@pytest.mark.parametrize("operation", range(10))
def test_a_clean_stop_is_forgotten_for_good_also_by_a_start_that_is_killed(operation: int) -> None:
    for seed in range(10):
        files = MemFiles()
        a_data_dir(files).close(clean=True)
        interrupt(files, operation)
        with suppress(PowerCut):
            a_data_dir(files)
        files = files.kill()
        append(a_data_dir(files).open_partition("t", ID, 0, Settings()).log, a_batch())
        assert not a_data_dir(files.crash(random.Random(seed))).was_clean


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


DAMAGED = [b"", b"no json", b"{}", b"[]", b'"x"']


@pytest.mark.parametrize("content", [None, *DAMAGED])
def test_a_directory_nobody_owns_is_set_aside(content: bytes | None) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    directory = partition_dir(PATH, "t", 0)
    append(data_dir.open_partition("t", ID, 0, Settings()).log, a_batch())
    files.unlink(directory / "recovery-point")
    if content is None:
        files.unlink(directory / "partition.json")
    else:
        files.write_atomically(directory / "partition.json", content)
    assert data_dir.open_partition("t", ID, 0, Settings()).log.end_offset == 0
    assert files.list_dir(PATH / "quarantine") == ["t-0-unknown.0"]


@pytest.mark.parametrize("content", [None, *DAMAGED])
@pytest.mark.parametrize(
    ("topic_id", "first_epoch", "stays"),
    [(ID, 2, True), (ID, 3, False), (OTHER_ID, 0, False)],
    ids=["its own", "of a partition that was removed since", "of another topic"],
)
def test_a_directory_whose_recovery_point_says_whose_it_is_stays(
    content: bytes | None, topic_id: bytes, first_epoch: int, stays: bool
) -> None:
    """Only that file is gone or damaged: what was acknowledged is there, and its offsets are given to nobody else."""
    files = MemFiles()
    data_dir = a_data_dir(files)
    path = partition_dir(PATH, "t", 0) / "partition.json"
    log = data_dir.open_partition("t", ID, 0, Settings(), first_epoch=2).log
    append(log, a_batch(), epoch=2)
    log.close()
    sound = files.read(path)
    if content is None:
        files.unlink(path)
    else:
        files.write_atomically(path, content)
    again = data_dir.open_partition("t", topic_id, 0, Settings(), first_epoch=first_epoch).log
    assert again.end_offset == (1 if stays else 0)
    assert files.list_dir(PATH / "quarantine") == ([] if stays else ["t-0-unknown.0"])
    assert (files.read(path) == sound) is stays


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


@pytest.mark.parametrize("operation", range(0, 80, 3))
@pytest.mark.parametrize("what", ["kill", "error"])
def test_what_is_written_to_partitions_that_were_half_laid_out_survives_a_power_cut(
    operation: int, what: str
) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    (interrupt if what == "kill" else fail_once)(files, operation)
    with suppress(PowerCut, StorageError):
        data_dir.lay_out("t", ID, range(8))
    if what == "kill":
        data_dir = a_data_dir(files.kill())
    else:
        del files.enter
    for index in range(8):
        log = data_dir.open_partition("t", ID, index, Settings(), after_failure=True).log
        append(log, a_batch())
        sync(log)
    data_dir = a_data_dir(data_dir.files.crash(random.Random(operation)))  # type: ignore[attr-defined]
    for index in range(8):
        assert data_dir.open_partition("t", ID, index, Settings(), after_failure=True).log.end_offset == 1


def test_strays_are_set_aside_and_named() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    for topic, index in (("a", 0), ("a", 1), ("b", 0)):
        data_dir.open_partition(topic, ID, index, Settings())
    assert data_dir.quarantine_strays({("a", 0)}) == ["a-1", "b-0"]
    assert files.list_dir(PATH / "topics" / "a") == ["Partition-0"]
    assert len(files.list_dir(PATH / "quarantine")) == 2


def test_a_stray_that_cannot_be_set_aside_keeps_no_broker_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    for topic, index in (("a", 0), ("a", 1), ("b", 0)):
        data_dir.open_partition(topic, ID, index, Settings())
    files.fail_next("rename", "*Partition-0")
    assert data_dir.quarantine_strays(set()) == ["a-1", "b-0"]
    assert "a-0" in caplog.text
    files.mend()
    assert data_dir.quarantine_strays(set()) == ["a-0"]


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


def test_a_deletion_makes_room_also_where_nothing_can_be_moved_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    for index in range(2):
        log = data_dir.open_partition("t", ID, index, Settings()).log
        append(log, a_batch(padding=1000))
        log.close()
    before = files.free_bytes(PATH)

    def no_room(path: Path) -> None:
        raise DiskFullError(f"{path}: No space left on device")

    monkeypatch.setattr(files, "make_dirs", no_room)
    data_dir.discard_partition("t", ID, 1)
    assert not files.exists(partition_dir(PATH, "t", 1))
    assert files.exists(partition_dir(PATH, "t", 0))
    data_dir.discard_topic("t", ID)
    assert not files.exists(partition_dir(PATH, "t", 0).parent)
    assert files.free_bytes(PATH) > before + 2000


def test_what_cannot_be_thrown_away_keeps_nothing_else_from_it() -> None:
    files = MemFiles()
    data_dir = a_data_dir(files)
    for topic in ("a", "b"):
        data_dir.open_partition(topic, ID, 0, Settings()).log.close()
        data_dir.discard_topic(topic, ID)
    files.fail_next("unlink", "*/trash/a*.log")
    with pytest.raises(DiskFailedError):
        data_dir.empty_trash()
    assert [name[0] for name in files.list_dir(PATH / "trash")] == ["a"]


def test_what_a_kill_leaves_of_a_replica_that_was_being_removed_is_not_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may come back to this broker: begun late or with a hole, its log would pass for a whole one."""
    files = MemFiles()
    data_dir = a_data_dir(files)
    log = data_dir.open_partition("t", ID, 0, Settings(segment_bytes=1)).log
    for _ in range(5):
        append(log, a_batch())
        sync(log, checkpoint=True)
    log.close()

    def no_room(path: Path) -> None:
        raise DiskFullError(f"{path}: No space left on device")

    files.fail_next("unlink", "*2.log")
    with monkeypatch.context() as full:
        full.setattr(files, "make_dirs", no_room)
        with pytest.raises(DiskFailedError):
            data_dir.discard_partition("t", ID, 0)
    data_dir = a_data_dir(files.crash(random.Random(1)))
    log = data_dir.open_partition("t", ID, 0, Settings(), after_failure=True).log
    assert (log.start_offset, log.end_offset) == (0, 0)
