"""What `penstock doctor` and `penstock why` found, and what to do about it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, str | None]:
        return {
            "check": self.check,
            "level": str(self.level),
            "found": self.found,
            "advice": self.advice or None,
        }


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, found, advice)


def print_findings(findings: Sequence[Finding]) -> None:
    """One line per finding, and one below it for what to do: a table would cut the advice."""
    width = max(len(one.check) for one in findings)
    if not sys.stdout.isatty():
        for one in findings:
            print(f"{one.level:<4}  {one.check:<{width}}  {one.found}")
            if one.advice:
                print(f"{'':<4}  {'':<{width}}  -> {one.advice}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for one in findings:
        console.print(
            Text.assemble((f"{one.level:<4}", _STYLES[one.level]), f"  {one.check:<{width}}  {one.found}")
        )
        if one.advice:
            console.print(Text(f"{'':<4}  {'':<{width}}  -> {one.advice}", style="bold"))
