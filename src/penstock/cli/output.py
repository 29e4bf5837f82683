"""Printing: tables for people, aligned columns for pipes, JSON for machines."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

Cell = str | int | float | None


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> None:
    """Numbers stand right. Without a terminal nothing is wrapped, cut or coloured."""
    cells = [[_text(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in cells]) for i in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, cells, numeric, title)
        return
    widths = [max(len(name), *(len(row[i]) for row in cells), 0) for i, name in enumerate(columns)]
    if title:
        print(title)
    for row in [list(columns), *cells]:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())


def _print_rich(columns: Sequence[str], cells: list[list[str]], numeric: list[bool], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,.1f}" if isinstance(cell, float) else str(cell)


def _is_numeric(column: list[str]) -> bool:
    """Whether all of it are numbers, or missing."""
    given = [text for text in column if text != "-"]
    return bool(given) and all(
        text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit() for text in given
    )
