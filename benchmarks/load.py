"""The load generators of `benchmarks/load/`: compiled when needed, run as processes, one JSON line each."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

SOURCE_DIR = Path(__file__).with_name("load")
BUILD_DIR = Path(__file__).parents[1] / "build" / "load"
RDKAFKA_HEADER = Path("librdkafka/rdkafka.h")
INCLUDE_DIRS = (Path("/usr/include"), Path("/usr/local/include"), Path("/opt/homebrew/include"))

Metrics = dict[str, float]


class LoadError(Exception):
    """A load generator could not be built or did not get its work done."""


def build() -> None:
    """Compile what is not up to date."""
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            raise LoadError(
                f"the load generators need `{tool}`: install a C compiler (Debian: build-essential)"
            )
    if not any((root / RDKAFKA_HEADER).exists() for root in INCLUDE_DIRS):
        raise LoadError("the load generators need librdkafka's header (Debian: librdkafka-dev)")
    command = ["make", "-s", "-C", str(SOURCE_DIR), f"BUILD={BUILD_DIR}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadError(f"the load generators do not compile:\n{done.stderr}")


class Running:
    """A load generator at work beside something else."""

    def __init__(self, program: str, **arguments: object) -> None:
        self._program = program
        command = [str(BUILD_DIR / program)]
        for name, value in arguments.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )

    def interrupt(self) -> None:
        """Ask it to end early and report what it has."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def abandon_if_running(self) -> None:
        """End it without a report, if it has not given one."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def result(self) -> Metrics:
        """Wait for its report."""
        try:
            output, errors = self._process.communicate()
        except BaseException:
            self.abandon_if_running()
            raise
        if self._process.returncode != 0 or not output.startswith("{"):
            raise LoadError(f"{self._program} failed: {errors.strip() or output.strip()}")
        return {name: float(value) for name, value in json.loads(output).items()}


def run(program: str, **arguments: object) -> Metrics:
    """Run a load generator to its end."""
    return Running(program, **arguments).result()
