"""A log that may lack anything says so, whatever stops the start that finds it, until it is copied anew or leads."""

import random
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, fail_once, interrupt
from tests.unit.storage.logs import Settings, a_batch, append, sync

from penstock.core.errors import StorageError
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.data_dir import DataDir
from penstock.storage.incomplete import forget_incomplete
from penstock.storage.layout import (
    EPOCHS_FILE,
    INCOMPLETE_FILE,
    LOG,
    PARTITION_FILE,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    segment_name,
)
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import start_over
from penstock.testing.mem_files import MemFiles

TOPIC_ID = b"t" * 16
DIRECTORY = Path("/data/topics/t/Partition-0")
END = 10
SMALL = Settings(segment_bytes=3 * len(a_batch()))  # segments from 0, 3, 6 and 9 on


def opened(
    files: MemFiles, *, expected: bool = True, replicated: bool = True, topic_id: bytes = TOPIC_ID
) -> Log:
    data_dir = DataDir(files, Path("/data"), random.Random(1))
    data_dir.open()
    try:
        found = data_dir.open_partition("t", topic_id, 0, SMALL, has_laggards=replicated, expected=expected)
    finally:
        data_dir.close(clean=False)
    return found.log


def filled() -> MemFiles:
    files = MemFiles(1)
    log = opened(files, expected=False)
    for number in range(END):
        append(log, a_batch(producer=(7, 0, number)), epoch=3)
    sync(log, checkpoint=True)
    log.close()
    return files


def lose(files: MemFiles, *names: str) -> None:
    for name in names:
        files.unlink(DIRECTORY / name)
    files.sync_dir(DIRECTORY)


def forget_segments(files: MemFiles) -> None:
    """As 0.1.0 wrote its recovery points."""
    point = RecoveryPoint.parse(files.read(DIRECTORY / RECOVERY_POINT_FILE))
    files.write_atomically(DIRECTORY / RECOVERY_POINT_FILE, point._replace(sealed=None).dump())


FRONT, MIDDLE, LAST = (segment_name(base, LOG) for base in (0, 3, 9))
DAMAGES = {
    "directory": lambda files: files.remove_tree(DIRECTORY),
    "owner and point": lambda files: lose(files, PARTITION_FILE, RECOVERY_POINT_FILE),
    "rest": lambda files: lose(files, *(n for n in files.list_dir(DIRECTORY) if n != PARTITION_FILE)),
    "point": lambda files: lose(files, RECOVERY_POINT_FILE),
    "point and front": lambda files: lose(files, RECOVERY_POINT_FILE, FRONT),
    "point and middle": lambda files: lose(files, RECOVERY_POINT_FILE, MIDDLE),
    "front": lambda files: lose(files, FRONT),
    "middle": lambda files: lose(files, MIDDLE),
    "end": lambda files: lose(files, LAST),
    "producers": lambda files: lose(files, segment_name(END, SNAPSHOT)),
    "epochs": lambda files: lose(files, EPOCHS_FILE),
    "middle of an old log": lambda files: (forget_segments(files), lose(files, MIDDLE)),
}


def damaged(damage: str) -> MemFiles:
    files = filled()
    DAMAGES[damage](files)
    return files.kill()


@pytest.mark.parametrize("how", ["kill", "cut", "error"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_incomplete_at_whichever_operation_a_start_is_stopped(damage: str, how: str) -> None:
    for operations in range(1000):
        files = damaged(damage)
        (fail_once if how == "error" else interrupt)(files, operations)
        try:
            assert opened(files).is_incomplete
            break
        except (PowerCut, StorageError):
            files.__dict__.pop("enter", None)
            files = files.crash(random.Random(operations)) if how == "cut" else files.kill()
            assert opened(files).is_incomplete
    assert operations > 10


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_stays_so_until_it_begins_anew(damage: str) -> None:
    files = damaged(damage)
    log = opened(files)
    append(log, a_batch())
    sync(log, checkpoint=True)
    files = files.kill()
    log = opened(files, expected=False)
    assert log.is_incomplete
    assert not start_over(log, 0, ProducerState()).is_incomplete
    assert not opened(files.kill()).is_incomplete


def test_or_until_it_leads() -> None:
    files = damaged("directory")
    forget_incomplete(log := opened(files))
    assert not log.is_incomplete
    assert not opened(files.crash(random.Random(1))).is_incomplete


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_only_replica_is_never_incomplete(damage: str) -> None:
    files = damaged(damage)
    assert not opened(files, expected=False, replicated=False).is_incomplete
    assert not files.exists(DIRECTORY / INCOMPLETE_FILE)


def test_nor_is_a_log_that_is_made_while_the_broker_runs() -> None:
    assert not opened(MemFiles(1), expected=False).is_incomplete


def test_nor_one_that_is_whole_also_if_an_earlier_version_wrote_its_recovery_point() -> None:
    files = filled()
    assert not opened(files).is_incomplete
    forget_segments(files)
    assert not opened(files).is_incomplete


def test_nor_that_of_a_topic_made_again_under_the_name() -> None:
    files = damaged("directory")
    opened(files).close()
    assert not opened(files, expected=False, topic_id=b"u" * 16).is_incomplete
