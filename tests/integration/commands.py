"""The `penstock` command as its users run it: another process, with pipes; or in this one, where that tells as much."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from penstock.cli.main import main

COMMAND = [sys.executable, "-m", "penstock.cli.main"]


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def said(self) -> str:
        """The one line on stderr that a failed command leaves."""
        assert self.err.count("\n") == 1, f"not one line:\n{self.err}"
        assert self.err.startswith("penstock: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("penstock: ").strip()


def environment(bootstrap: str | None = None, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    if bootstrap is not None:
        clean["PENSTOCK_BOOTSTRAP"] = bootstrap
    return clean | {"COLUMNS": "200"} | dict(extra or {})


def penstock(
    *arguments: str,
    bootstrap: str | None = None,
    stdin: str | bytes = b"",
    extra: Mapping[str, str] | None = None,
) -> Done:
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(bootstrap, extra),
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def penstock_here(
    capfd: pytest.CaptureFixture[str],
    *arguments: str,
    bootstrap: str | None = None,
    extra: Mapping[str, str] | None = None,
) -> Done:
    """The same in this process: another one takes a second to start, and a Spark of its own ten."""
    capfd.readouterr()
    with (
        patch.object(sys, "argv", ["penstock", *arguments]),
        patch.dict(os.environ, environment(bootstrap, extra), clear=True),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    out, said = capfd.readouterr()
    code = ended.value.code
    return Done(code if isinstance(code, int) else 0, out, said)
