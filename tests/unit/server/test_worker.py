"""Rounds of compaction in processes of their own: answers, errors, and processes that end in the middle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.compacting import clean_job, run_round, write
from tests.unit.storage.logs import opened

from penstock.core.errors import WorkerDiedError
from penstock.core.os_files import OsFiles
from penstock.server.worker import Pacer, Workers
from penstock.storage.compaction.clean_job import CleanJob
from penstock.storage.layout import LOG, segment_name
from penstock.storage.segment import DamagedSegmentError


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers() as made:
        yield made


def a_job(directory: Path) -> CleanJob:
    log = opened(OsFiles(), None, directory).log
    for number in range(3):
        write(log, [[(b"a", b"%d" % number), (b"%d" % number, b"x")]])
    job = clean_job(log, segment_bytes=0)
    log.close()
    return job


def test_a_round_is_the_same_as_here(workers: Workers, tmp_path: Path) -> None:
    job = a_job(tmp_path)
    here = run_round(job)
    names = sorted(path.name for path in tmp_path.iterdir())
    remote = workers.round_of(job)
    learned = remote.learn()
    assert (learned.end_offset, learned.complete, learned.keys) == (6, True, 4)
    assert list(iter(remote.rewrite_next, None)) == here.segments
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    remote.close()


def test_it_works_at_low_priority(workers: Workers, tmp_path: Path) -> None:
    remote = workers.round_of(a_job(tmp_path))
    remote.learn()
    assert remote.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, remote.pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_an_error_comes_back_as_what_it_is(workers: Workers, tmp_path: Path) -> None:
    job = a_job(tmp_path)
    (tmp_path / segment_name(2, LOG)).write_bytes(b"!" * 200)
    with pytest.raises(DamagedSegmentError):
        workers.round_of(job).learn()


def test_a_process_that_dies_is_told_and_the_next_one_works(workers: Workers, tmp_path: Path) -> None:
    job = a_job(tmp_path)
    remote = workers.round_of(job)
    remote.learn()
    pid = remote.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=f"-{signal.SIGKILL.value}"):
        remote.rewrite_next()
    remote.close()
    assert workers.round_of(job).learn().keys == 4


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    with Workers() as workers:
        remote = workers.round_of(a_job(tmp_path)._replace(bytes_per_second_max=0.001))
        running = workers.threads.submit(remote.learn)
        while remote.pid is None:
            time.sleep(0.01)
    with pytest.raises(WorkerDiedError):
        running.result()


PARENT = """
import sys, threading, time
from pathlib import Path
from penstock.server.worker import Workers
from tests.unit.server.test_worker import a_job
if __name__ == "__main__":
    one = Workers().round_of(a_job(Path(sys.argv[1]))._replace(bytes_per_second_max=0.001))
    threading.Thread(target=one.learn).start()
    while one.pid is None:
        time.sleep(0.01)
    print(one.pid, flush=True)
"""


def test_a_worker_dies_with_its_broker(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}
    command = [sys.executable, str(script), str(tmp_path / "log")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        try:
            child = int(parent.stdout.readline())
        finally:
            parent.kill()
    while _is_alive(child):
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_pacer_keeps_to_its_rate() -> None:
    began = time.monotonic()
    pace = Pacer(1_000_000)
    for _ in range(10):
        pace(10_000)
    assert time.monotonic() - began >= 0.1
