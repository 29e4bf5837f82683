"""One archiver per lake: a live one is respected, a dead one is not waited for."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.spark.pipelines.archive.errors import ConflictError, LockHeldError
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.lock import PATH, STALE_SECONDS, Lock, Owner, process_space
from penstock.spark.pipelines.status import process_started


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def owner_now(lake: FolderLake) -> Owner:
    owner = Owner.decode(lake.read(PATH))
    assert owner is not None
    return owner


def another(pid: int = 1, **changes: object) -> Owner:
    owner = Owner(
        "other", "elsewhere", pid, process_started(pid) or "?", process_space(), time.time(), time.time()
    )
    return replace(owner, **changes)  # type: ignore[arg-type]


def test_a_lock_is_there_while_it_is_held_and_gone_afterwards(lake: FolderLake) -> None:
    with Lock(lake) as lock:
        lock.check()
        assert owner_now(lake).pid == os.getpid()
    assert lake.list(PATH.rpartition("/")[0]) == []


def test_a_live_owner_is_named(lake: FolderLake) -> None:
    lake.create(PATH, another(pid=os.getppid()).encode())
    with pytest.raises(LockHeldError, match=f"process {os.getppid()} on elsewhere archives into"), Lock(lake):
        pass
    assert owner_now(lake).token == "other"


def test_a_second_lock_in_the_same_process_is_refused_too(lake: FolderLake) -> None:
    with Lock(lake) as lock:
        with pytest.raises(LockHeldError), Lock(lake):
            pass
        lock.check()


def test_a_dead_owner_on_this_machine_is_taken_over_at_once(lake: FolderLake) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lake.create(PATH, another(pid=dead.pid, process_started="1").encode())
    with Lock(lake) as lock:
        lock.check()


def test_a_process_that_only_has_the_id_of_a_dead_owner_holds_nothing(lake: FolderLake) -> None:
    lake.create(PATH, another(pid=os.getppid(), process_started="long ago").encode())
    with Lock(lake) as lock:
        lock.check()


def test_an_owner_elsewhere_lives_by_its_heartbeat(lake: FolderLake) -> None:
    far = another(pid=2**22 + 1, process_space="another machine")
    lake.create(PATH, far.encode())
    with pytest.raises(LockHeldError), Lock(lake):
        pass
    lake.replace(PATH, replace(far, heartbeat=time.time() - STALE_SECONDS - 1).encode())
    with Lock(lake) as lock:
        lock.check()


def test_a_lock_file_that_says_nothing_holds_nobody_up(lake: FolderLake) -> None:
    lake.create(PATH, b"")
    with Lock(lake) as lock:
        lock.check()


def test_the_heartbeat_beats(lake: FolderLake) -> None:
    with Lock(lake, heartbeat_seconds=0.01):
        first = owner_now(lake).heartbeat
        while owner_now(lake).heartbeat == first:
            time.sleep(0.01)
        assert owner_now(lake).heartbeat > first


def test_somebody_who_lost_the_lock_notices_and_leaves_it_to_its_new_owner(lake: FolderLake) -> None:
    with Lock(lake, heartbeat_seconds=0.01) as lock:
        with lock._mutex:  # not between a heartbeat's look and its write
            lake.replace(PATH, another().encode())
        with pytest.raises(ConflictError):
            lock.check()
    assert owner_now(lake).token == "other"


def test_a_lock_whose_answer_got_lost_is_held(lake: FolderLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop asks again, and is told that the name is taken: by itself."""
    create = FolderLake.create

    def twice(lake: FolderLake, path: str, content: bytes) -> None:
        create(lake, path, content)
        create(lake, path, content)

    monkeypatch.setattr(FolderLake, "create", twice)
    with Lock(lake) as lock:
        lock.check()
