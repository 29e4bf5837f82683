"""`penstock pipeline status`: what runs now, how fast, how far behind."""

import time
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.spark.pipelines.status import Status

_NAME_SHOWN = 48


def register(app: typer.Typer) -> None:
    command(
        app, "status", examples=("penstock pipeline status", "penstock pipeline status --json | jq '.[].lag'")
    )(status)


def status(session: Session) -> None:
    """Pipelines that run on this machine: their rates, and how many records they are behind their topics.

    Every user has a list of their own, in $PENSTOCK_STATE_DIR or ~/.local/state/penstock.
    """
    from penstock.spark.pipelines.status import lag, running

    found = [(pipeline, lag(pipeline)) for pipeline in running()]
    if session.json:
        print_json([_as_json(pipeline, behind) for pipeline, behind in found])
    elif found:
        now = time.time()
        print_table(
            ("kind", "name", "pid", "state", "topics", "rows", "rows/s", "MB/s", "lag", "running", "updated"),
            [_row(pipeline, behind, now) for pipeline, behind in found],
        )
    else:
        print("no pipelines run here; start one with `penstock pipeline archive`, `sql` or `run`")


def _row(pipeline: "Status", behind: int | None, now: float) -> tuple[str | int | float | None, ...]:
    name = pipeline.name if len(pipeline.name) <= _NAME_SHOWN else pipeline.name[: _NAME_SHOWN - 1] + "…"
    topics = ",".join(pipeline.topics) or "-"
    running, updated = _age(now - pipeline.started), f"{_age(now - pipeline.updated)} ago"
    rates = (pipeline.rows, pipeline.rows_per_s, pipeline.mb_per_s, behind)
    return (pipeline.kind, name, pipeline.pid, pipeline.state, topics, *rates, running, updated)


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def _as_json(pipeline: "Status", behind: int | None) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "kind": pipeline.kind,
        "pid": pipeline.pid,
        "host": pipeline.host,
        "state": pipeline.state,
        "started": pipeline.started,
        "updated": pipeline.updated,
        "bootstrap": pipeline.bootstrap,
        "topics": pipeline.topics,
        "offsets": {topic: {str(p): o for p, o in of.items()} for topic, of in pipeline.offsets.items()},
        "rows": pipeline.rows,
        "rows_per_s": pipeline.rows_per_s,
        "mb_per_s": pipeline.mb_per_s,
        "lag": behind,
    }
