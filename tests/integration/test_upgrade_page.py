"""docs/upgrade.md does what it says; a data directory that is not ours, or newer, is refused and left as it is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.commands import Done, environment, penstock

from penstock.storage.data_format import FORMAT
from penstock.testing import BrokerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "upgrade.md").read_text()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a broker left at a clean stop."""
    process = BrokerProcess(tmp_path_factory.mktemp("upgrade") / "data")
    process.start()
    process.stop()
    return process.data_dir


def up(data_dir: Path) -> Done:
    return penstock("up", "--port", "0", "--console-port", "0", "--data-dir", str(data_dir))


def test_the_commands_run_as_written(stopped: Path) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    here = block.replace(".venv/bin/penstock", f"{sys.executable} -m penstock.cli.main")
    here = here.replace("--data-dir data", f"--data-dir {stopped}").replace("doctor ", "doctor --port 1 ")
    done = subprocess.run(
        ["bash", "-ec", here], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {FORMAT} |" in PAGE


def test_a_newer_format_is_refused_by_all(stopped: Path) -> None:
    file = stopped / "identity.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | {"format": FORMAT + 1}))
        said = f"has format {FORMAT + 1}, and this version reads up to {FORMAT}"
        assert said in up(stopped).said()
        assert said in penstock("verify", "--data-dir", str(stopped)).said()
    finally:
        file.write_text(before)


def test_a_directory_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = up(tmp_path)
    assert refused.code == 1
    assert f"{tmp_path} is no data dir of Penstock, it holds notes.txt" in refused.said()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
