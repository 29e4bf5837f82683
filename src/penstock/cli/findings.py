"""What `doctor` and `why` found, on the screen."""

import sys
from collections.abc import Sequence

from penstock.diagnosis.findings import Finding

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def print_findings(findings: Sequence[Finding]) -> None:
    """One line per finding, and one below it for what to do: a table would cut the advice."""
    width = max(len(finding.check) for finding in findings)
    if not sys.stdout.isatty():
        for finding in findings:
            print(f"{finding.level:<4}  {finding.check:<{width}}  {finding.found}")
            if finding.advice:
                print(f"{'':<4}  {'':<{width}}  -> {finding.advice}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for finding in findings:
        console.print(
            Text.assemble(
                (f"{finding.level:<4}", _STYLES[finding.level]),
                f"  {finding.check:<{width}}  {finding.found}",
            )
        )
        if finding.advice:
            console.print(Text(f"{'':<4}  {'':<{width}}  -> {finding.advice}", style="bold"))
