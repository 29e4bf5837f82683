"""The first minute of somebody who has the wheel and no checkout: install it, start a broker, send and read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Stranger:
    """An empty environment in an empty folder, where nothing of the checkout is found."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "env" / "bin"
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PENSTOCK_", "VIRTUAL_"))
        }
        self.run(sys.executable, "-m", "venv", "env")

    def run(self, *command: str | Path, told: str = "", code: int = 0) -> str:
        """What a command printed, errors included; it ends with `code`."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.home,
            env=self._environment,
            input=told,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def penstock(self, *arguments: str, told: str = "", code: int = 0) -> str:
        return self.run(self.bin / "penstock", *arguments, told=told, code=code)

    def up(self) -> "subprocess.Popen[str]":
        command = [str(self.bin / "penstock"), "up", "--port", "0", "--console-port", "0"]
        return subprocess.Popen(
            command,
            cwd=self.home,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    stranger = Stranger(tmp_path_factory.mktemp("stranger"))
    stranger.run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ROOT)
    (wheel,) = (stranger.home / "dist").glob("penstock_mq-*.whl")
    stranger.run(stranger.bin / "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    return stranger


@pytest.fixture(scope="module")
def bootstrap(stranger: Stranger) -> Iterator[str]:
    with stranger.up() as broker:
        try:
            assert broker.stdout is not None
            yield next(line.split()[3] for line in broker.stdout if line.startswith("penstock listens on "))
        finally:
            broker.terminate()
            assert broker.wait(60) == 0


def test_a_message_goes_in_and_comes_out(stranger: Stranger, bootstrap: str) -> None:
    ask = ("--bootstrap", bootstrap)
    stranger.penstock(*ask, "topic", "create", "orders", "--partitions", "1")
    stranger.penstock(*ask, "produce", "orders", told="one lamp\n")
    assert "one lamp" in stranger.penstock(*ask, "consume", "orders", "--from-beginning", "--max", "1")


def test_the_sdk_is_there(stranger: Stranger, bootstrap: str) -> None:
    script = (
        "import sys, penstock; p = penstock.Producer(sys.argv[1]);"
        "print(p.send('by-hand', {'lamps': 2}).result().offset); p.close()"
    )
    assert stranger.run(stranger.bin / "python", "-c", script, bootstrap).split() == ["0"]


def test_a_missing_extra_is_installed_by_the_line_that_the_error_has(stranger: Stranger) -> None:
    said = stranger.penstock(
        "broker",
        "--id",
        "1",
        "--listener",
        "127.0.0.1:0",
        "--zookeeper",
        "127.0.0.1:1/none",
        "--data-dir",
        "d",
        code=1,
    )
    (wheel,) = (stranger.home / "dist").glob("*.whl")
    assert f"pip install '{wheel}[cluster]'" in said.replace("\n", "")
