"""docs/pipelines.md does what it says: its commands and snippets run as written, and show what it shows.

A fence says how its commands run: ```sh one after another; ```sh broker starts the broker that all of them talk to;
```sh background goes on until the page ends; ```sh until is repeated until it shows what the page does. ```python
runs in the session that the tests share. A ```text fence behind one of them is its output: what differs from run to
run (decimals, times, ids; `…` for anything) is compared by its shape, everything else to the letter.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Self

import pytest
from tests.integration.commands import environment

from penstock.testing import broker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "pipelines.md").read_text()
WAIT_S = 300

# What is different in every run, as the page writes it, and what it stands for.
VARYING = (
    (r"…", r".*"),
    (r"/tmp/tutorial\S*", r"\S+"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", None),  # times inside orders are what the page put there
    (r"\b\d{13}\b", r"\d{13}"),
    (r"\b[\w-]{22}\b", r"[\w-]{22}"),
    (r"\b[\d,]+ rows/s", r"[\d,]+ rows/s"),
    (r"\b\d+[smh]\b", r"\d+[smh]"),
    (r"\b\d+\.\d+\b(?!\.)", r"[\d,]+\.\d+"),
)


@dataclass(frozen=True)
class Step:
    kind: str
    code: str
    shown: str


def steps(page: str) -> list[Step]:
    fences = re.findall(r"^```([a-z ]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found: list[Step] = []
    for kind, text in fences:
        if kind == "text":
            found[-1] = Step(found[-1].kind, found[-1].code, text)
        elif kind:
            found.append(Step(kind, text, ""))
    return found


def shape(shown: str) -> re.Pattern[str]:
    """What an output must look like to be the one that the page shows."""
    varying = re.compile("|".join(f"({written})" for written, _ in VARYING))
    pattern, end = "", 0
    for match in varying.finditer(shown):
        pattern += re.escape(shown[end : match.start()])
        meant = VARYING[(match.lastindex or 1) - 1][1]
        pattern += re.escape(match[0]) if meant is None else meant
        end = match.end()
    return re.compile(pattern + re.escape(shown[end:]))


def tidy(output: str) -> str:
    """Columns are as wide as their widest cell, which may be one of those that vary."""
    lines = (re.sub(r"-{2,}", "--", " ".join(line.split())) for line in output.splitlines())
    return "\n".join(line for line in lines if line)


def same(output: str, shown: str) -> bool:
    return shape(tidy(shown)).fullmatch(tidy(output)) is not None


class Reader:
    """Somebody with this page, a shell and a Python prompt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bootstrap = ""
        self._names: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def follow(self, step: Step) -> None:
        code = step.code.replace("/tmp/tutorial", str(self._folder)).replace(
            "127.0.0.1:9092", self._bootstrap
        )
        if step.kind == "python":
            self._check(step, self._python(code))
        elif step.kind == "sh broker":
            self._start_broker(code)
        elif step.kind == "sh background":
            self._stack.enter_context(self._left_running(code))
        elif step.kind == "sh until":
            self._until(step, code)
        else:
            assert step.kind == "sh", f"what is ```{step.kind}?"
            self._check(step, self._shell(code))

    def _start_broker(self, command: str) -> None:
        words = shlex.split(command)
        assert words[:2] == ["penstock", "up"]
        assert words[2::2] == ["--set"] * (len(words) // 2 - 1)
        settings = dict(word.split("=", 1) for word in words[3::2])
        self._bootstrap = self._stack.enter_context(broker(settings)).bootstrap

    def _python(self, code: str) -> str:
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(code, "docs/pipelines.md", "exec"), self._names)
        return out.getvalue()

    def _environment(self) -> dict[str, str]:
        # As after `. .venv/bin/activate`, in whatever environment the tests run.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return environment(self._bootstrap, {"PATH": path, "PENSTOCK_STATE_DIR": str(self._folder / "state")})

    def _shell(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", code],
            env=self._environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _until(self, step: Step, code: str) -> None:
        until = time.monotonic() + WAIT_S
        output = self._shell(code)
        while not same(output, step.shown) and time.monotonic() < until:
            output = self._shell(code)
        self._check(step, output)

    @contextmanager
    def _left_running(self, code: str) -> Iterator[None]:
        log = self._folder / "background.log"
        with log.open("w") as out:
            # `exec`: Ctrl-C is for the command, not for the shell around it.
            process = subprocess.Popen(
                ["bash", "-c", f"exec {code}"],
                env=self._environment(),
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0, log.read_text()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @staticmethod
    def _check(step: Step, output: str) -> None:
        if step.shown:
            assert same(output, step.shown), (
                f"{step.code}\nshows\n\n{output}\nand the page says\n\n{step.shown}"
            )


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(1800)  # five Sparks one after another, on a machine that may be busy with others
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    found = steps(PAGE)
    assert [step.kind for step in found].count("sh") >= 6
    with Reader(tmp_path) as reader:
        for step in found:
            reader.follow(step)


def test_what_varies_is_compared_by_its_shape_and_the_rest_to_the_letter() -> None:
    assert same("archived 10 rows in  12.0 s", "archived 10 rows in 0.7 s\n")
    assert not same("archived 11 rows in 12.0 s", "archived 10 rows in 0.7 s")
    assert same("id iB7gGJuH3eUkOWi70bKVOQ at 1738324800000", "id u8Yw6gGJuH3eUkOWi7_-VO at 1700000000000")
    assert not same('"at": "2025-01-31T00:06:00Z"', '"at": "2025-01-31T00:07:00Z"')
    assert same("+-----+\n| a |", "+--+\n| a |")
    assert same("pid 4711 running 12s", "pid … running 3m")
    assert not same("pid 4711 ended 12s", "pid … running 3m")
