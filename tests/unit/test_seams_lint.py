"""The lint that keeps real I/O behind the seams."""

from pathlib import Path

import pytest
from tools.lint_seams import allowed_kinds, check_source, main


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("open('x')", "files"),
        ("with open('x') as f: pass", "files"),
        ("import os\nos.unlink('x')", "files"),
        ("import os.path\nos.path.exists('x')", "files"),
        ("from os import listdir as names\nnames('x')", "files"),
        ("import shutil\nshutil.rmtree('x')", "files"),
        ("path.read_text()", "files"),
        ("path.write_bytes(b'')", "files"),
        ("path.unlink(missing_ok=True)", "files"),
        ("path.exists()", "files"),
        ("path.rename(target)", "files"),
        ("path.parent.mkdir(parents=True)", "files"),
        ("import socket as s\ns.create_connection(('h', 1))", "sockets"),
        ("import time\ntime.time()", "clock"),
        ("from time import monotonic as now\nnow()", "clock"),
        ("import time\nclock = time.perf_counter", "clock"),
        ("from datetime import datetime\ndatetime.now()", "clock"),
        ("import datetime\ndatetime.datetime.now(tz)", "clock"),
        ("import random\nrandom.random()", "random"),
        ("from random import choice\nchoice([1])", "random"),
        ("import secrets\nsecrets.token_bytes(16)", "random"),
        ("import uuid\nuuid.uuid4()", "random"),
        ("import os\nos.urandom(16)", "random"),
        ("import threading\nthreading.Thread(target=f).start()", "threads"),
        ("import subprocess\nsubprocess.run(['x'])", "processes"),
        ("import os\nos.kill(1, 9)", "processes"),
        ("import sqlite3\nsqlite3.connect('x')", "sqlite"),
        ("loop.create_task(work())", "tasks"),
        ("import asyncio\nasyncio.ensure_future(work())", "tasks"),
        ("async def f():\n  async with asyncio.TaskGroup() as group:\n    loop.create_task(work())", "tasks"),
        ("loop.run_in_executor(None, work)", "jobs"),
        ("async def f():\n  running = loop.run_in_executor(None, work)\n  await running", "jobs"),
        ("for x in {1, 2}: pass", "order"),
        ("for x in set(names): pass", "order"),
        ("for x in set(a) - b: pass", "order"),
        ("[x for x in {y for y in z}]", "order"),
        ("list(set(names))", "order"),
    ],
)
def test_what_leaves_the_seams_is_found(source: str, kind: str) -> None:
    assert [finding.kind for finding in check_source(source)] == [kind]


@pytest.mark.parametrize(
    "source",
    [
        "files.open(path)",
        "files.exists(path)",
        "files.unlink(path)",
        "files.rename(a, b)",
        "text.replace('a', 'b')",
        "import random\nrng = random.Random(7)\nrng.random()",
        "from random import Random\ndef f(rng: Random) -> None: rng.choice([1])",
        "import uuid\nuuid.UUID(int=5)",
        "import datetime\ndatetime.datetime.fromtimestamp(0)",
        "from pathlib import Path\nPath('a') / 'b'",
        "loop.time()",
        "for x in sorted(set(names)): pass",
        "for x in dict.fromkeys(names): pass",
        "smaller = {x for x in set(names)}",
        "import asyncio\nasyncio.open_connection",
        "self.time.time()",
        "async def f():\n  done = await loop.run_in_executor(None, work)",
    ],
)
def test_what_stays_inside_is_left_alone(source: str) -> None:
    assert check_source(source) == []


def test_each_seam_is_allowed_only_its_own() -> None:
    assert allowed_kinds("core/os_files.py") == {"files"}
    assert allowed_kinds("core/clock.py") == {"clock"}
    assert allowed_kinds("coordination/embedded.py") == {"sqlite"}
    assert allowed_kinds("storage/log.py") == set()
    assert "sockets" in allowed_kinds("server/listener.py")
    assert "order" not in allowed_kinds("server/listener.py")


def test_findings_are_printed_with_their_place_and_fail_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "os_files.py").write_text("import os\nos.unlink('x')\n")
    assert main([str(tmp_path)]) == 0
    bad = tmp_path / "storage" / "log.py"
    bad.write_text("import time\n\nnow = time.time()\n")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith(f"{bad}:3: time.time: ")


def test_a_task_of_a_group_or_of_a_named_owner_is_seen_to_its_end() -> None:
    grouped = "async def f():\n  async with asyncio.TaskGroup() as group:\n    group.create_task(work())"
    assert not check_source(grouped)
    owned = "class Tasks:\n  def start(self):\n    self._loop.create_task(work())"
    assert not check_source(owned, "core/tasks.py")
    assert check_source(owned, "core/other.py")
