"""`penstock txn abort`: end a transaction over its producer's head."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError, WrongUseError
from penstock.cli.output import print_json
from penstock.cli.txn_words import opened_json

if TYPE_CHECKING:
    from penstock.client.admin.transactions import TransactionAdmin
    from penstock.client.topic_partition import TopicPartition
    from penstock.diagnosis.transactions import Opened

_HANGING = "One that hangs"
_EXAMPLES = (
    "penstock txn abort billing-0",
    "penstock txn abort --topic orders --partition 0 --start-offset 4711",
    "penstock txn abort --topic orders --partition 0 --producer-id 1001 --yes",
)


def register(transactions: typer.Typer) -> None:
    command(transactions, "abort", examples=_EXAMPLES)(abort)


def abort(
    session: Session,
    transactional_id: Annotated[
        str | None, typer.Argument(help="Whose transaction.", metavar="[ID]", show_default=False)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where it hangs.", rich_help_panel=_HANGING)
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="P", help="Where it hangs.", rich_help_panel=_HANGING)
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Where it begins there.", rich_help_panel=_HANGING),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Whose it is.", rich_help_panel=_HANGING)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """End a transaction: what was written in it never shows.

    By its transactional id: its coordinator aborts it in all its partitions, and whoever produces under the id has to
    begin anew or is out. By partition, one that hangs, which no coordinator will end (`penstock txn find-hanging`): an
    abort marker is written there. A transaction that its coordinator will end is never ended in one partition alone.
    """
    by_place = (topic, partition, start_offset, producer_id)
    from penstock.client.admin.transactions import TransactionAdmin
    from penstock.client.connect import reach
    from penstock.client.topic_partition import TopicPartition

    if transactional_id is not None:
        if any(given is not None for given in by_place):
            raise WrongUseError("give a transactional id, or where a transaction hangs, not both")
    elif topic is None or partition is None or (start_offset is None and producer_id is None):
        raise WrongUseError(
            "name a transactional id, or where one hangs: --topic, --partition, and --start-offset or --producer-id"
        )
    reach(session.bootstrap)
    with TransactionAdmin(session.bootstrap) as admin:
        if transactional_id is not None:
            _by_id(session, admin, transactional_id, yes=yes)
        else:
            assert topic is not None
            assert partition is not None
            _in_partition(
                session, admin, TopicPartition(topic, partition), start_offset, producer_id, yes=yes
            )


def _by_id(session: Session, admin: "TransactionAdmin", transactional_id: str, *, yes: bool) -> None:
    from penstock.cli.txn import described
    from penstock.diagnosis.transactions import ONGOING, state_text

    info = described(admin, transactional_id)
    now_ms = time.time_ns() // 1_000_000
    if info.state != ONGOING:
        raise CommandError(f"{info.id} {state_text(info, now_ms)}: there is nothing to abort")
    _confirm(session, f"{info.id} {state_text(info, now_ms)}", "Abort it, and fence its producer?", yes=yes)
    admin.fence(info)
    if session.json:
        print_json({"transactional_id": info.id, "aborted": True})
    else:
        print(f"aborted what was open under {info.id}; its producer is fenced")


def _in_partition(
    session: Session,
    admin: "TransactionAdmin",
    place: "TopicPartition",
    start_offset: int | None,
    producer_id: int | None,
    *,
    yes: bool,
) -> None:
    from penstock.diagnosis.transactions import look_at_open, opened_text

    opened = _chosen(look_at_open(admin, [place]), place, start_offset, producer_id)
    said = opened_text(opened, time.time_ns() // 1_000_000)
    if opened.hangs is None:
        from penstock.client.admin.transactions import TransactionsOffError

        raise TransactionsOffError
    if not opened.hangs:
        owner = opened.owner
        assert owner is not None
        raise CommandError(
            f"{place}: {said}; its coordinator will end it in all its partitions: to have that done now, "
            f"`penstock txn abort {owner.id}`"
        )
    _confirm(session, f"{place}, from offset {opened.transaction.start_offset}: {said}", "Abort it?", yes=yes)
    admin.abort(opened.transaction)
    if session.json:
        print_json({**opened_json(opened), "aborted": True})
    else:
        print(f"aborted in {place}: read_committed readers go on behind it")


def _chosen(
    found: "list[Opened]", place: "TopicPartition", start_offset: int | None, producer_id: int | None
) -> "Opened":
    for each in found:
        transaction = each.transaction
        if start_offset in (None, transaction.start_offset) and producer_id in (
            None,
            transaction.producer_id,
        ):
            return each
    there = ", ".join(
        f"{each.transaction.start_offset} (producer {each.transaction.producer_id})" for each in found
    )
    raise CommandError(
        f"{place} has no such open transaction"
        + (f", but those that begin at {there}" if there else ": nothing is open there")
    )


def _confirm(session: Session, said: str, question: str, *, yes: bool) -> None:
    if yes:
        return
    if session.json or not sys.stdin.isatty():
        raise WrongUseError(f"{said}; say with --yes that it shall be aborted")
    typer.confirm(f"{said}. {question}", abort=True)
