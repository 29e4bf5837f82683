"""Which transactions hang, and what is said of those that hold readers back."""

from dataclasses import replace

import pytest

from penstock.client.admin.transactions import NO_TIME, HeldBack, OpenTransaction, TransactionInfo
from penstock.client.topic_partition import TopicPartition
from penstock.diagnosis.findings import Level
from penstock.diagnosis.transactions import (
    Holder,
    Opened,
    advice,
    holder_findings,
    judged,
    opened_text,
    state_text,
    time_text,
)

NOW = 1_700_000_000_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OPEN = OpenTransaction(P0, 7, 3, 40, 2, NOW - 90_000)
INFO = TransactionInfo("billing-0", 1, "Ongoing", 7, 3, 60_000, NOW - 30_000, (P0, P1))


def opened(transaction: OpenTransaction = OPEN, owner: TransactionInfo | None = INFO) -> Opened:
    (found,) = judged([transaction], [] if owner is None else [owner], [transaction])
    return found


def held(at: TopicPartition, found: Opened) -> Holder:
    return Holder(HeldBack(at, 40, 100), found)


def test_what_its_coordinator_has_does_not_hang() -> None:
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        assert opened(owner=replace(INFO, state=state)).hangs is False


@pytest.mark.parametrize(
    "owner",
    [None, replace(INFO, producer_id=8), replace(INFO, partitions=(P1,)), replace(INFO, partitions=())],
)
def test_what_no_coordinator_has_hangs(owner: TransactionInfo | None) -> None:
    assert opened(owner=owner).hangs is True


@pytest.mark.parametrize(
    "after",
    [
        [],
        [replace(OPEN, start_offset=60)],
        [replace(OPEN, epoch=4)],
        [replace(OPEN, producer_id=8)],
        [replace(OPEN, at=P1)],
    ],
)
def test_what_ended_while_coordinators_were_asked_does_not_hang(after: list[OpenTransaction]) -> None:
    assert judged([OPEN], [], after) == []


def test_what_goes_on_meanwhile_is_the_same_one() -> None:
    (found,) = judged([OPEN], [], [replace(OPEN, written_ms=NOW)])
    assert found.hangs is True


def test_one_that_is_open_for_long_is_named_with_its_owner_and_what_ends_it() -> None:
    found = opened()
    (said,) = holder_findings([held(P0, found), held(P1, found)], NOW)
    assert said.level is Level.WARN
    assert said.found == (
        "orders-0, orders-1: read_committed readers stop, with 120 offsets to go: transactional id billing-0 "
        "(producer 7, epoch 3) has a transaction open for 30 s, in 2 partitions"
    )
    assert said.advice.startswith("its producer ends it, or it is aborted in 30 s (its timeout); ")
    assert "`penstock txn abort billing-0` ends it now" in said.advice


def test_a_young_one_is_nothing_to_worry_about() -> None:
    (said,) = holder_findings([held(P0, opened(owner=replace(INFO, started_ms=NOW - 2000)))], NOW)
    assert (said.level, said.advice) == (Level.OK, "")


def test_one_that_hangs_comes_first_with_the_command_that_ends_it() -> None:
    hanging = opened(replace(OPEN, at=P1), None)
    first, second = holder_findings([held(P0, opened()), held(P1, hanging)], NOW)
    assert (first.level, second.level) == (Level.FAIL, Level.WARN)
    assert first.found == (
        "orders-1: read_committed readers stop at 40, with 60 offsets to go: a transaction of producer 7, epoch 3, "
        "last written to 1 min 30 s ago, hangs: no coordinator knows it, so nobody will ever end it"
    )
    assert first.advice == (
        "`penstock txn abort --topic orders --partition 1 --start-offset 40` takes back what was written"
    )


def test_one_that_hangs_although_its_producer_is_known_says_so() -> None:
    said = opened_text(opened(owner=replace(INFO, state="CompleteCommit", partitions=())), NOW)
    assert "transactional id billing-0 (producer 7, epoch 3)" in said
    assert "its coordinator has nothing open there" in said


def test_without_coordinators_nobody_can_tell() -> None:
    (said,) = holder_findings([held(P0, Opened(OPEN, None, None))], NOW)
    assert (said.level, "nobody coordinates transactions" in said.found) == (Level.WARN, True)
    assert "penstock.transactions.enable" in said.advice


def test_many_are_counted() -> None:
    holders = [held(P0, opened(replace(OPEN, producer_id=n), replace(INFO, producer_id=n))) for n in range(8)]
    told = holder_findings(holders, NOW)
    assert len(told) == 6
    assert told[-1].found == "and 3 transactions more hold readers back"


@pytest.mark.parametrize(
    ("fields", "said", "advised"),
    [
        ({"started_ms": NOW - 61_000}, "open for 1 min 1 s", "its coordinator aborts it within seconds"),
        ({"started_ms": NOW - 600_000}, "open for 10 min", "broker 1, should have aborted it"),
        ({"state": "PrepareCommit"}, "committed for good; 2 partitions", "see who leads orders-0, orders-1"),
        (
            {"state": "PrepareAbort", "partitions": (P1,)},
            "aborted for good; 1 partition ",
            "who leads orders-1",
        ),
        ({"state": "PrepareAbort", "partitions": ()}, "aborted for good; 0 partitions", ""),
        ({"state": "CompleteCommit"}, "has committed its latest transaction", ""),
        ({"state": "CompleteAbort"}, "has aborted its latest transaction", ""),
        ({"state": "Empty", "started_ms": NO_TIME}, "has no transaction open", ""),
        ({"state": "Dead"}, "is being forgotten", ""),
        ({"state": "Novel"}, "is in state Novel", ""),
    ],
)
def test_each_state_in_words(fields: dict[str, object], said: str, advised: str) -> None:
    info = replace(INFO, **fields)  # type: ignore[arg-type]
    assert said in state_text(info, NOW)
    told = advice(info, NOW)
    assert (advised in told) if advised else told == ""


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (-5, "0 s"),
        (999, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_723_000, "1 h 2 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_as_people_say_them(duration_ms: int, text: str) -> None:
    assert time_text(duration_ms) == text
