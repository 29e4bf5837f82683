"""What `doctor` and `why` found, on the screen."""

import sys
from collections.abc import Sequence

from penstock.diagnosis.findings import Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def print_findings(findings: Sequence[Finding]) -> None:
    """One line per finding, and one below it for what to do: a table would cut the advice."""
    width = max(len(finding.check) for finding in findings)
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
