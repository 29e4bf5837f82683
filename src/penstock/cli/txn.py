"""`penstock txn …`: look at transactions, find those that hang, and end them."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import txn_abort
from penstock.cli.command import Session, command
from penstock.cli.errors import CommandError, WrongUseError
from penstock.cli.options import parse_duration
from penstock.cli.output import print_json, print_table
from penstock.cli.txn_words import TransactionState, opened_json

if TYPE_CHECKING:
    from penstock.client.admin.transactions import TransactionAdmin, TransactionInfo, TransactionSummary
    from penstock.diagnosis.transactions import Opened

_ACTIVE = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def register(app: typer.Typer) -> None:
    transactions = typer.Typer(no_args_is_help=True)
    app.add_typer(transactions, name="txn", help="Look at transactions, find those that hang, and end them.")
    command(
        transactions,
        "list",
        examples=(
            "penstock txn list",
            "penstock txn list --state Ongoing --longer-than 1m",
            "penstock txn list --pattern 'billing-.*' --json",
        ),
    )(list_)
    command(transactions, "describe", examples=("penstock txn describe billing-0",))(describe)
    command(
        transactions,
        "find-hanging",
        examples=("penstock txn find-hanging", "penstock txn find-hanging --topic orders"),
    )(find_hanging)
    txn_abort.register(transactions)


def list_(
    session: Session,
    state: Annotated[
        list[TransactionState] | None,
        typer.Option(help="Only those in this state; may be repeated.", case_sensitive=False),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only transactions that are under way for longer: 30s, 5m, 2h."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only transactional ids that match, as a whole."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(min=0, metavar="N", help="Only of this producer; may be repeated.")
    ] = None,
) -> None:
    """Every transactional id: the state of its transaction, its producer, its coordinator, and how long it is open."""
    longer_ms = -1 if longer_than is None else round(parse_duration("--longer-than", longer_than) * 1000)
    states = set(state or ())
    if longer_ms >= 0:
        # Brokers let those pass that are not open: they have no beginning, or an old one.
        states = states.intersection(_ACTIVE) if states else set(_ACTIVE)
        if not states:
            raise WrongUseError("--longer-than is about transactions that are under way: leave out --state")
    from penstock.diagnosis.transactions import is_active, time_text

    with _admin(session) as admin:
        found = admin.find(
            states=[str(each) for each in states],
            producers=producer_id or (),
            longer_than_ms=longer_ms,
            pattern=pattern or "",
        )
        # Only of these anybody wants to know for how long.
        infos = admin.describe(each.id for each in found if each.state in _ACTIVE)
    now_ms = _now_ms()
    ages = {name: max(now_ms - info.started_ms, 0) for name, info in infos.items() if is_active(info)}
    if session.json:
        print_json([_summary_json(each, ages.get(each.id)) for each in found])
    elif found:
        print_table(
            ("transactional id", "state", "producer", "coordinator", "open for"),
            [
                (
                    each.id,
                    each.state,
                    each.producer_id,
                    each.coordinator,
                    time_text(ages[each.id]) if each.id in ages else None,
                )
                for each in found
            ],
        )
    elif states or producer_id or pattern:
        print("no transactional id is like that; `penstock txn list` has all of them")
    else:
        print("no transactional ids yet; one begins with any producer's transactional.id")


def _summary_json(each: "TransactionSummary", age_ms: int | None) -> dict[str, Any]:
    return {
        "transactional_id": each.id,
        "state": each.state,
        "producer_id": each.producer_id,
        "coordinator": each.coordinator,
        "open_ms": age_ms,
    }


def describe(
    session: Session,
    transactional_id: Annotated[str, typer.Argument(help="The transactional id.", metavar="ID")],
) -> None:
    """One transactional id: what goes on under it, since when, in which partitions, and what to do about it."""
    with _admin(session) as admin:
        info = described(admin, transactional_id)
    now_ms = _now_ms()
    if session.json:
        print_json(_info_json(info, now_ms))
        return
    from penstock.diagnosis.transactions import advice, is_active, state_text, time_text

    print(f"{info.id} {state_text(info, now_ms)}")
    rows: list[tuple[str, str | int]] = [
        ("state", info.state),
        ("producer", f"{info.producer_id}, epoch {info.epoch}"),
        ("coordinator", f"broker {info.coordinator}"),
        ("timeout", time_text(info.timeout_ms)),
    ]
    if is_active(info):
        rows.append(("since", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.started_ms / 1000))))
    for name, value in rows:
        print(f"  {name:<12} {value}")
    if info.partitions:
        what = "partition" if info.state == TransactionState.ONGOING else "without its marker"
        print_table((f"  {what}",), [(f"  {place}",) for place in info.partitions])
    if advised := advice(info, now_ms):
        print(f"-> {advised}")


def described(admin: "TransactionAdmin", transactional_id: str) -> "TransactionInfo":
    info = admin.describe([transactional_id]).get(transactional_id)
    if info is None:
        raise CommandError(f"there is no transactional id {transactional_id}: see `penstock txn list`")
    return info


def _info_json(info: "TransactionInfo", now_ms: int) -> dict[str, Any]:
    from penstock.diagnosis.transactions import advice, age_ms, is_active, state_text

    return {
        "transactional_id": info.id,
        "state": info.state,
        "producer_id": info.producer_id,
        "producer_epoch": info.epoch,
        "coordinator": info.coordinator,
        "timeout_ms": info.timeout_ms,
        "started_ms": info.started_ms if info.started_ms >= 0 else None,
        "open_ms": age_ms(info, now_ms) if is_active(info) else None,
        "partitions": [{"topic": place.topic, "partition": place.partition} for place in info.partitions],
        "found": state_text(info, now_ms),
        "advice": advice(info, now_ms) or None,
    }


def find_hanging(
    session: Session,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Only in this topic; may be repeated.")
    ] = None,
) -> None:
    """Transactions that are open in a partition, and that no coordinator will ever end.

    Readers of what is committed wait for them for ever. They come from brokers of old that let a late batch in, or with
    the files of another cluster. Looks at all partitions in which something is not settled.
    """
    from penstock.diagnosis.transactions import abort_command, look_at_open, time_text

    with _admin(session) as admin:
        held = admin.held_back(admin.partitions(topic or ()))
        opened = look_at_open(admin, [each.at for each in held])
    if any(each.hangs is None for each in opened):
        from penstock.client.admin.transactions import TransactionsOffError

        raise TransactionsOffError
    found = [each for each in opened if each.hangs]
    now_ms = _now_ms()
    if session.json:
        print_json([opened_json(each) for each in found])
    elif found:
        print_table(
            ("topic", "partition", "start offset", "producer", "epoch", "transactional id", "last written"),
            [_hanging_row(each, time_text(now_ms - each.transaction.written_ms)) for each in found],
        )
        print(f"{abort_command(found[0].transaction)} aborts the first of them")
    else:
        print("no transaction hangs")


def _hanging_row(each: "Opened", age: str) -> tuple[str | int | None, ...]:
    transaction = each.transaction
    return (
        transaction.at.topic,
        transaction.at.partition,
        transaction.start_offset,
        transaction.producer_id,
        transaction.epoch,
        each.owner.id if each.owner else None,
        f"{age} ago",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _admin(session: Session) -> "TransactionAdmin":
    from penstock.client.admin.transactions import TransactionAdmin
    from penstock.client.connect import reach

    reach(session.bootstrap)
    return TransactionAdmin(session.bootstrap)
