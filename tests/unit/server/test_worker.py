"""Jobs in a process of their own: answers, errors, and processes that end in the middle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import DiskFullError
from penstock.server.worker import Pacer, ProcessExecutor, WorkerDiedError


@pytest.fixture
def worker() -> Iterator[ProcessExecutor]:
    with ProcessExecutor() as executor:
        yield executor


def test_a_job_runs_in_another_process_at_low_priority(worker: ProcessExecutor) -> None:
    assert worker.submit(os.getpid).result() != os.getpid()
    assert worker.submit(os.nice, 0).result() > os.nice(0)


def test_an_error_comes_back_as_what_it_is(worker: ProcessExecutor) -> None:
    with pytest.raises(DiskFullError, match="no room"):
        worker.submit(_fail, DiskFullError("no room")).result()


def _fail(error: Exception) -> None:
    raise error


def test_a_process_that_dies_is_told_and_the_next_one_works(worker: ProcessExecutor) -> None:
    with pytest.raises(WorkerDiedError, match=f"-{signal.SIGKILL.value}"):
        worker.submit(_kill_self).result()
    assert worker.submit(len, "four").result() == 4


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    worker = ProcessExecutor()
    running = worker.submit(_tell_and_hang, tmp_path / "pid")
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    worker.shutdown()
    with pytest.raises(WorkerDiedError):
        running.result()


def _tell_and_hang(path: Path) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(str(os.getpid()))
    draft.rename(path)
    signal.pause()


def test_a_worker_dies_with_its_broker(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys, pathlib\n"
        "from penstock.server.worker import ProcessExecutor\n"
        "from tests.unit.server.test_worker import _tell_and_hang\n"
        "if __name__ == '__main__':\n"
        "    ProcessExecutor().submit(_tell_and_hang, pathlib.Path(sys.argv[1])).result()\n"
    )
    root = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}
    parent = subprocess.Popen([sys.executable, str(script), str(path)], env=environment)
    try:
        while not path.exists():
            assert parent.poll() is None
            time.sleep(0.01)
        child = int(path.read_text())
    finally:
        parent.kill()
        parent.wait()
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
