"""`penstock up` and `penstock broker` as processes: what they say, how they stop, how they refuse."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.commands import COMMAND, environment, penstock

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@contextmanager
def started(*arguments: str, **extra: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A broker command that serves, and the lines it said until then."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, env=environment(extra=extra)
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "ready" in line:
                break
        yield process, lines
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_first_line_on_a_pipe_names_the_address(tmp_path: Path) -> None:
    with started("up", "--port", "0", "--console-port", "0", "--data-dir", str(tmp_path)) as (_, lines):
        assert lines[0].startswith("penstock listens on 127.0.0.1:")
        port = int(lines[0].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            pass
        assert any(str(tmp_path) in line for line in lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly_with_a_word(tmp_path: Path, number: signal.Signals) -> None:
    with started("up", "--port", "0", "--console-port", "0", "--data-dir", str(tmp_path)) as (process, _):
        process.send_signal(number)
        assert process.stdout is not None
        assert "stopped" in process.stdout.read()
        assert process.wait() == 0
    with started("up", "--port", "0", "--console-port", "0", "--data-dir", str(tmp_path)) as (_, lines):
        assert "nothing to recover" in lines[-1]


def test_says_what_it_recovered_after_a_kill(tmp_path: Path) -> None:
    arguments = ("up", "--port", "0", "--console-port", "-1", "--data-dir", str(tmp_path), "--json")
    with started(*arguments) as (process, lines):
        first = json.loads(lines[0])
        process.kill()
        process.wait()
    with started(*arguments) as (_, lines):
        second = json.loads(lines[0])
    assert (first["clean"], second["clean"]) == (True, False)
    assert first["console_port"] is None
    assert "unclean" in second["state"]


def test_flag_wins_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        f'node.id = 5\nlisteners = ["PLAINTEXT://127.0.0.1:0"]\nlog.dirs = "{tmp_path}/file"\n'
        "penstock.console.port = -1\n"
    )
    with started("broker", "--config", str(file), "--json") as (_, lines):
        assert json.loads(lines[0])["node_id"] == 5
        assert json.loads(lines[0])["data_dir"] == f"{tmp_path}/file"
    with started("broker", "--config", str(file), "--json", PENSTOCK_LOG_DIRS=f"{tmp_path}/env") as (
        _,
        lines,
    ):
        assert json.loads(lines[0])["data_dir"] == f"{tmp_path}/env"
    flags = ("--data-dir", f"{tmp_path}/flag", "--id", "7")
    with started("broker", "--config", str(file), *flags, "--json", PENSTOCK_NODE_ID="6") as (_, lines):
        assert json.loads(lines[0])["node_id"] == 7
        assert json.loads(lines[0])["data_dir"] == f"{tmp_path}/flag"


def test_broker_needs_to_know_who_it_is() -> None:
    done = penstock("broker", "--id", "1")
    assert done.code == 2
    assert "--listener, --data-dir missing" in done.said()


def test_port_in_use_says_what_to_do_and_touches_no_data(tmp_path: Path, running: BrokerProcess) -> None:
    for option, other in (("--port", "--console-port"), ("--console-port", "--port")):
        done = penstock("up", option, str(running.port), other, "0", "--data-dir", str(tmp_path / "new"))
        assert done.code == 1
        assert f"port {running.port} on 127.0.0.1 is in use" in done.said()
        assert f"another with {option}" in done.said()
    assert not (tmp_path / "new").exists()


def test_locked_data_dir_says_what_to_do(running: BrokerProcess) -> None:
    done = penstock("up", "--port", "0", "--console-port", "0", "--data-dir", str(running.data_dir))
    assert done.code == 1
    assert "in use by a running broker" in done.said()
    assert "--data-dir" in done.said()


def test_data_dir_that_cannot_be_made_or_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (file, file / "below"):
        done = penstock("up", "--port", "0", "--console-port", "0", "--data-dir", str(path))
        assert done.code == 1
        assert "--data-dir" in done.said()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", "num.partition=3"], 1, "did you mean num.partitions?"),
        (["--set", "num.partitions=0"], 1, "at least 1"),
        (["--set", "num.partitions"], 2, "--set name=value"),
        (["--port", "70000"], 2, "'--port'"),
        (["--prot", "0"], 2, "--prot"),
        (["--host", "192.0.2.1"], 1, "no address of this machine"),
    ],
)
def test_bad_settings_are_one_line(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = penstock("up", "--data-dir", str(tmp_path / "data"), "--console-port", "0", *arguments)
    assert done.code == code
    assert words in done.said()


def test_settings_without_effect_are_told_by_name(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", {"num.network.threads": "8"})
    process.start()
    process.stop()
    assert "num.network.threads=8 has no effect" in process.log_path.read_text()


def test_debug_shows_the_traceback() -> None:
    done = penstock("up", "--set", "num.partitions=0", "--debug")
    assert done.code == 1
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("penstock: ")
