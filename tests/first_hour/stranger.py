"""Somebody who has the wheel and no checkout: an empty environment in an empty folder, and a clock beside it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Stranger:
    """Runs commands as anybody would who just installed the package; nothing of the checkout is found."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.bin = home / "env" / "bin"
        self._capture = capture
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PENSTOCK_", "VIRTUAL_", "SPARK_", "PYSPARK_"))
        }

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """One step of the hour, timed; told on the terminal when it is done."""
        begun = time.monotonic()
        yield
        with self._capture.disabled():
            print(f"\n  {time.monotonic() - begun:6.1f} s  {what}", end="", flush=True)

    def knows(self, bootstrap: str) -> None:
        """The broker that commands talk to from now on."""
        self._environment["PENSTOCK_BOOTSTRAP"] = bootstrap

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

    def penstock(self, line: str, *, told: str = "", code: int = 0) -> str:
        """`penstock` with the words of a line."""
        return self.run(self.bin / "penstock", *line.split(), told=told, code=code)

    def python(self, script: str) -> str:
        return self.run(self.bin / "python", "-c", script)

    # -- installing -----------------------------------------------------------------------------------------------

    @property
    def wheel(self) -> Path:
        (wheel,) = (self.home / "dist").glob("penstock_mq-*.whl")
        return wheel

    def install(self, extras: str = "") -> None:
        """The wheel and what it needs, by the pip of the tests: making another one would take as long as the rest."""
        if not self.bin.exists():
            self.run(sys.executable, "-m", "venv", "--without-pip", "env")
            self._pip("wheel", "--no-deps", "--wheel-dir", "dist", str(ROOT))
        self._pip("--python", str(self.bin / "python"), "install", "--no-compile", f"{self.wheel}{extras}")

    def _pip(self, *arguments: str) -> None:
        self.run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)

    # -- running --------------------------------------------------------------------------------------------------

    @contextmanager
    def up(self, program: Path | None = None) -> Iterator[str]:
        """`penstock up` in a terminal of its own, until it is stopped; gives the address that it greets with."""
        command = [str(program or self.bin / "penstock"), "up", "--port", "0", "--console-port", "0"]
        with subprocess.Popen(
            command,
            cwd=self.home,
            env=self._environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as broker:
            try:
                assert broker.stdout is not None
                address = next(
                    line.split()[3] for line in broker.stdout if line.startswith("penstock listens on ")
                )
                self.knows(address)
                yield address
            finally:
                broker.terminate()
                assert broker.wait(60) == 0
