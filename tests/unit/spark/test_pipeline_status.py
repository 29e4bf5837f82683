"""Which pipelines run, as their status files tell it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.pipelines.status import StatusFile, lag, process_started, running, state_dir


def test_a_pipeline_is_listed_while_it_runs(tmp_path: Path) -> None:
    with StatusFile("sql", "count", bootstrap="b:1", topics=["t"], directory=tmp_path) as status:
        status.update(offsets={"t": {0: 7}}, rows=5)
        status.update(offsets={"t": {1: 9}}, rows=6, size_bytes=2_000_000)
        (seen,) = running(tmp_path)
        assert (seen.kind, seen.name, seen.pid, seen.state) == ("sql", "count", os.getpid(), "running")
        assert seen.offsets == {"t": {0: 7, 1: 9}}
        assert (seen.rows, seen.size_bytes) == (11, 2_000_000)
        assert seen.rows_per_s > 0
        assert seen.mb_per_s is not None
        assert seen.updated >= seen.started
    assert running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_dead_pipeline_is_not_listed_and_its_file_goes(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    file = plant(tmp_path, pid=int(dead.stdout))
    assert running(tmp_path) == []
    assert not file.exists()


def test_a_process_with_a_used_again_id_is_another(tmp_path: Path) -> None:
    file = plant(tmp_path, process_started="1")
    assert running(tmp_path) == []
    assert not file.exists()


def test_what_runs_on_another_machine_is_left_alone(tmp_path: Path) -> None:
    plant(tmp_path, pid=0, host="elsewhere")
    assert [status.host for status in running(tmp_path)] == ["elsewhere"]


def test_a_zombie_does_not_live() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process_started(child.pid) is None
    child.wait()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', "nonsense", '{"offsets": {"t": {"x": "y"}}}'])
def test_files_of_others_are_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    assert running(tmp_path) == []
    assert (tmp_path / "other.json").exists()


def test_fields_of_a_newer_version_do_no_harm(tmp_path: Path) -> None:
    plant(tmp_path, mood="fine")
    assert len(running(tmp_path)) == 1


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with StatusFile("run", "x", bootstrap="b:1", directory=tmp_path / "file") as status:
        status.update(rows=3)
    assert status.status.rows == 3


def test_the_state_directory() -> None:
    assert state_dir({"PENSTOCK_STATE_DIR": "/a"}) == Path("/a")
    assert state_dir({"XDG_STATE_HOME": "/b"}) == Path("/b/penstock")
    assert state_dir({}) == Path.home() / ".local/state/penstock"


def test_no_broker_no_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.pipelines.status.BROKER_TIMEOUT_MS", 100)
    status = StatusFile("sql", "x", bootstrap="127.0.0.1:1", directory=tmp_path)
    assert lag(status.status) is None
    status.update(offsets={"t": {0: 1}})
    assert lag(status.status) is None


def plant(folder: Path, **changes: object) -> Path:
    """A status file of this process, changed."""
    with StatusFile("sql", "planted", bootstrap="b:1", directory=folder) as status:
        tree = json.loads(status.path.read_text())
    path = folder / "planted.json"
    path.write_text(json.dumps(tree | changes))
    return path
