"""`penstock group reset`: let a group go on elsewhere."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError, WrongUseError
from penstock.cli.options import parse_time
from penstock.cli.output import print_json, print_table
from penstock.core.text import count_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin, Move, ResetTo

_WHERE = "Where to (one of these)"
_EXAMPLES = (
    "penstock group reset billing --topic orders --to-earliest",
    "penstock group reset billing --to-time 2h --dry-run",
    "penstock group reset billing --topic orders --partition 0 --shift-by -10",
)


def register(groups: typer.Typer) -> None:
    command(groups, "reset", examples=_EXAMPLES)(reset)


def reset(
    session: Session,
    group: Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")],
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="Only this topic; may be repeated (default: all it has read)."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, metavar="P", help="Only this partition; may be repeated.")
    ] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the oldest message.", rich_help_panel=_WHERE)
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: nothing that is there.", rich_help_panel=_WHERE)
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="To this offset.", rich_help_panel=_WHERE)
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            "--to-datetime",
            "--to-timestamp",
            metavar="TIME",
            help="To a time: 5m, 2h or 1d ago, 2025-01-31T12:00, or epoch ms.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="So many offsets on from where it is; negative goes back.",
            rich_help_panel=_WHERE,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Let a group go on elsewhere: the next offset to read, committed for it.

    The group must have no members. What waits in its retry topics stays unless they are named. An offset that a
    partition does not have becomes the nearest one it has. What was committed before is shown, so that a reset can be
    taken back.
    """
    to = _place(to_earliest, to_latest, to_offset, to_time, shift_by)
    from penstock.client.admin.admin import Admin

    admin = Admin(session.bootstrap, debug=session.debug)
    topics = list(dict.fromkeys(topic)) if topic else _topics_of(admin, group)
    if partition and len(topics) != 1:
        raise WrongUseError("--partition is about one topic: name it with --topic")
    moves = [move for name in topics for move in admin.plan_reset(group, name, to, partition or None)]
    if not dry_run:
        admin.carry_out(group, moves)
    if session.json:
        print_json({"group": group, "done": not dry_run, "partitions": [_as_json(move) for move in moves]})
        return
    print_table(
        ("topic", "partition", "was", "is" if not dry_run else "would be"),
        [(move.topic, move.partition, move.before, move.after) for move in moves],
    )
    if dry_run:
        print("nothing was changed; run it again without --dry-run to do it")
    else:
        print(f"group {group} goes on there in {count_text(len(moves), 'partition')}")


def _place(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_time: str | None, shift_by: int | None
) -> "ResetTo":
    given = (to_earliest, to_latest, to_offset is not None, to_time is not None, shift_by is not None)
    if sum(given) != 1:
        raise WrongUseError(
            "say where to: give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift-by"
        )
    if to_earliest or to_latest:
        return "earliest" if to_earliest else "latest"
    if to_time is not None:
        at_ms = parse_time(to_time, time.time_ns() // 1_000_000, option="--to-time")
        try:
            return datetime.fromtimestamp(at_ms / 1000, UTC)
        except (OverflowError, ValueError, OSError) as error:
            raise WrongUseError(f"--to-time {to_time!r} is not a time that a clock shows") from error
    if shift_by is not None:
        from penstock.client.admin.admin import Shift

        return Shift(shift_by)
    assert to_offset is not None
    return to_offset


def _topics_of(admin: "Admin", group: str) -> list[str]:
    """Not its retry topics: what waits there has failed, and is nowhere else."""
    from penstock.client.retry.policy import retry_topic

    found = admin.describe_group(group)
    read = {offset.topic for offset in found.offsets if offset.committed is not None}
    there = sorted(topic for topic in read if not topic.endswith(retry_topic("", group)))
    if not there:
        raise CommandError(f"group {group} has committed nothing: name the topic to begin in with --topic")
    return there


def _as_json(move: "Move") -> dict[str, str | int | None]:
    return {"topic": move.topic, "partition": move.partition, "before": move.before, "after": move.after}
