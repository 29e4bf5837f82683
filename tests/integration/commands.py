"""The `penstock` command as its users run it: another process, with pipes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
