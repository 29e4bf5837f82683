"""Transactions in words: which one holds readers back, which of them hang, and what is to be done.

A transaction is open in a partition from its first batch to its marker, and readers of what is committed see nothing
behind its beginning. It hangs when nobody will ever write that marker: no coordinator has the partition in a
transaction of the producer. To find out, partitions are asked before and behind the coordinators: what ended meanwhile
does not hang.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.admin.transactions import (
    HeldBack,
    OpenTransaction,
    TransactionAdmin,
    TransactionInfo,
    TransactionsOffError,
)
from penstock.client.topic_partition import TopicPartition
from penstock.core.text import count_text
from penstock.diagnosis.findings import Finding, fail, ok, warn

ONGOING = "Ongoing"
PREPARED = ("PrepareCommit", "PrepareAbort")
# A coordinator looks every ten seconds whether a transaction is open for too long.
_LOOK_MS = 10_000
# Who reads what is committed waits that long without anything being wrong.
_YOUNG_MS = 10_000
_NAMED_MAX = 5
_FOREVER = "nobody will ever end it"


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction that is open in a partition, and what its coordinator has to say."""

    transaction: OpenTransaction
    # The transactional id whose producer it is, as far as one is known; of others nobody knows whose it is.
    owner: TransactionInfo | None
    hangs: bool | None  # None: there are no coordinators that could be asked

    @property
    def since_ms(self) -> int:
        """When it began; of one that hangs only when it was last written to is known."""
        if self.owner is not None and self.hangs is False:
            return self.owner.started_ms
        return self.transaction.written_ms


@dataclass(frozen=True, slots=True)
class Holder:
    """What readers of one partition wait for."""

    held: HeldBack
    opened: Opened


def look_at_open(admin: TransactionAdmin, partitions: Iterable[TopicPartition]) -> list[Opened]:
    """All that is open there, and whether it hangs."""
    before = admin.open_in(partitions)
    if not before:
        return []
    try:
        ids = admin.find(producers={each.producer_id for each in before})
        owners = admin.describe(each.id for each in ids)
    except TransactionsOffError:
        return [Opened(each, None, None) for each in before]
    return judged(before, owners.values(), admin.open_in(dict.fromkeys(each.at for each in before)))


def judged(
    before: Sequence[OpenTransaction], owners: Iterable[TransactionInfo], after: Sequence[OpenTransaction]
) -> list[Opened]:
    """Of what is open before and behind the look at the coordinators."""
    by_producer = {owner.producer_id: owner for owner in owners}
    found = []
    for each in before:
        if any(map(each.is_same, after)):
            owner = by_producer.get(each.producer_id)
            # While it ends, those partitions are told that have no marker yet.
            hangs = owner is None or each.at not in owner.partitions
            found.append(Opened(each, owner, hangs))
    return found


def look_at_holders(admin: TransactionAdmin, partitions: Iterable[TopicPartition]) -> list[Holder]:
    """The earliest open transaction of each of these partitions that is held back."""
    held = {each.at: each for each in admin.held_back(partitions)}
    first: dict[TopicPartition, Opened] = {}
    for each in look_at_open(admin, held):
        first.setdefault(each.transaction.at, each)
    return [Holder(held[at], each) for at, each in first.items()]


# -- words ----------------------------------------------------------------------------------------------------


def holder_findings(holders: Sequence[Holder], now_ms: int) -> list[Finding]:
    """One for each transaction, however many partitions wait for it: the worst first."""
    same: dict[object, list[Holder]] = {}
    for holder in holders:
        opened = holder.opened
        # What hangs is aborted partition by partition.
        key = opened.transaction.at if opened.hangs is not False else opened.transaction.producer_id
        same.setdefault(key, []).append(holder)
    ordered = sorted(same.values(), key=lambda each: (not each[0].opened.hangs, each[0].opened.since_ms))
    found = [_finding(each, now_ms) for each in ordered[:_NAMED_MAX]]
    if len(ordered) > _NAMED_MAX:
        more = count_text(len(ordered) - _NAMED_MAX, "transaction")
        found.append(
            warn("transaction", f"and {more} more hold readers back", "`penstock txn list` has them")
        )
    return found


def _finding(holders: Sequence[Holder], now_ms: int) -> Finding:
    opened = holders[0].opened
    waiting = sum(holder.held.high_watermark - holder.held.last_stable_offset for holder in holders)
    places = ", ".join(str(holder.held.at) for holder in holders[:_NAMED_MAX])
    if len(holders) > _NAMED_MAX:
        places += f" and {len(holders) - _NAMED_MAX} more"
    at = f" at {holders[0].held.last_stable_offset}" if len(holders) == 1 else ""
    where = f"{places}: read_committed readers stop{at}, with {count_text(waiting, 'offset')} to go"
    said = f"{where}: {opened_text(opened, now_ms)}"
    if opened.hangs is None:
        return warn("transaction", said, "set penstock.transactions.enable, so that coordinators can end it")
    if opened.hangs:
        return fail("transaction", said, f"{abort_command(opened.transaction)} takes back what was written")
    owner = opened.owner
    assert owner is not None
    if owner.state == ONGOING and age_ms(owner, now_ms) < _YOUNG_MS:
        return ok("transaction", said)
    return warn("transaction", said, advice(owner, now_ms))


def opened_text(opened: Opened, now_ms: int) -> str:
    """Whose it is, since when it is open, and whether anybody will end it."""
    transaction, owner = opened.transaction, opened.owner
    producer = f"producer {transaction.producer_id}, epoch {transaction.epoch}"
    since = time_text(now_ms - opened.since_ms)
    if opened.hangs is None:
        return f"a transaction of {producer}, last written to {since} ago; nobody coordinates transactions"
    if opened.hangs:
        known = f"transactional id {owner.id} ({producer})" if owner else producer
        why = "its coordinator has nothing open there" if owner else "no coordinator knows it"
        return f"a transaction of {known}, last written to {since} ago, hangs: {why}, so {_FOREVER}"
    assert owner is not None
    return f"transactional id {owner.id} ({producer}) {state_text(owner, now_ms)}"


def state_text(info: TransactionInfo, now_ms: int) -> str:
    """What goes on under a transactional id."""
    age = time_text(age_ms(info, now_ms))
    left = count_text(len(info.partitions), "partition")
    match info.state:
        case "Ongoing":
            return f"has a transaction open for {age}, in {left}"
        case "PrepareCommit" | "PrepareAbort":
            ends = "committed" if info.state == "PrepareCommit" else "aborted"
            return f"has a transaction, begun {age} ago, that is {ends} for good; {left} still without its marker"
        case "CompleteCommit":
            return "has committed its latest transaction, and none is open"
        case "CompleteAbort":
            return "has aborted its latest transaction, and none is open"
        case "Empty":
            return "has no transaction open: a producer has begun under it, and written nothing in one yet"
        case "Dead":
            return "is being forgotten, since nobody has used it (transactional.id.expiration.ms)"
    return f"is in state {info.state}"


def advice(info: TransactionInfo, now_ms: int) -> str:
    """What to do about one that is open; empty where there is nothing to do."""
    if info.state == ONGOING:
        left_ms = info.timeout_ms - age_ms(info, now_ms)
        end = (
            f"`penstock txn abort {info.id}` ends it now, and whoever produces under the id has to begin anew"
        )
        if left_ms > 0:
            return f"its producer ends it, or it is aborted in {time_text(left_ms)} (its timeout); {end}"
        if left_ms > -2 * _LOOK_MS:
            return "its timeout has passed: its coordinator aborts it within seconds"
        return f"its timeout has passed, and its coordinator, broker {info.coordinator}, should have aborted it: {end}"
    if info.state in PREPARED:
        places = ", ".join(map(str, info.partitions[:_NAMED_MAX]))
        if not places:
            return ""
        return (
            f"nothing, if it is over in a moment; else see who leads {places} (`penstock status`), and the log of "
            f"its coordinator, broker {info.coordinator}"
        )
    return ""


def abort_command(transaction: OpenTransaction) -> str:
    at = transaction.at
    return (
        f"`penstock txn abort --topic {at.topic} --partition {at.partition} "
        f"--start-offset {transaction.start_offset}`"
    )


def age_ms(info: TransactionInfo, now_ms: int) -> int:
    return max(now_ms - info.started_ms, 0)


def is_active(info: TransactionInfo) -> bool:
    return info.state == ONGOING or info.state in PREPARED


def time_text(duration_ms: int) -> str:
    """3723000 is 1 h 2 min: enough for people."""
    seconds = max(duration_ms, 0) // 1000
    for unit, size, lower, divisor in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            more = rest // divisor
            return f"{whole} {unit} {more} {lower}" if more else f"{whole} {unit}"
    return f"{seconds} s"


def by_age(infos: Mapping[str, TransactionInfo]) -> list[TransactionInfo]:
    return sorted(infos.values(), key=lambda each: (not is_active(each), each.started_ms, each.id))
