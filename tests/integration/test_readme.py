"""The README's commands do what it says: each is run as written, against a live broker."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import BrokerProcess, broker

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def process() -> Iterator[BrokerProcess]:
    with broker() as running:
        yield running


def test_the_tour_runs_as_written(process: BrokerProcess) -> None:
    commands = "\n".join(blocks("sh")).strip().splitlines()
    assert len(commands) > 5
    environment = os.environ | {"PENSTOCK_BOOTSTRAP": process.bootstrap}
    for command in commands:
        # The tests may run from another virtual environment than the README's.
        here = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", here],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def test_the_python_examples_run_as_written(process: BrokerProcess, tmp_path: Path) -> None:
    script, test = blocks("python")
    code = script.replace("127.0.0.1:9092", process.bootstrap)
    subprocess.run([sys.executable, "-c", code], check=True)
    (tmp_path / "test_mine.py").write_text(test)
    subprocess.run([sys.executable, "-m", "pytest", "-q", str(tmp_path)], check=True, cwd=tmp_path)
