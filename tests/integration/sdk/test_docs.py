"""docs/sdk.md and the SDK's tour in the README do what they say: run as written, they print what they show."""

import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.integration.commands import environment, penstock
from tests.integration.sdk.conftest import Cluster

ROOT = Path(__file__).parents[3]


def test_the_tutorial_runs_as_written(cluster: Cluster) -> None:
    page = (ROOT / "docs" / "sdk.md").read_text()
    steps = re.findall(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```)?", page, re.MULTILINE | re.DOTALL)
    assert len(steps) >= 7
    names: dict[str, Any] = {}
    for code, shown in steps:
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(code.replace("127.0.0.1:9092", cluster.bootstrap), "docs/sdk.md", "exec"), names)
        # `…` stands for what differs from run to run.
        pattern = re.escape(shown).replace("…", ".*")
        assert re.fullmatch(pattern, out.getvalue()), f"{code}\nprints\n{out.getvalue()}"


def test_the_readme_tour_runs_as_written_and_once_more(cluster: Cluster) -> None:
    readme = (ROOT / "README.md").read_text()
    found = re.search(
        r"^```python sdk\n(.*?)^```\n+It prints `(.*?)` and `(.*?)`.*?^```sh sdk\n(.*?)^```",
        readme,
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None
    code = found[1].replace("127.0.0.1:9092", cluster.bootstrap)

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def letters() -> str:
        command = found[4].strip().removeprefix(".venv/bin/penstock ")  # type: ignore[index]
        return penstock(*command.split(), bootstrap=cluster.bootstrap).out

    assert run() == [found[2], found[3]]
    assert "nobody owes a negative amount" in letters(), "the dead letter that it announces is there"
    assert run()[1] == found[3]
    assert letters().count("nobody owes a negative amount") == 2
