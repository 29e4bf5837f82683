"""What a broker tells Prometheus of transactions."""

from typing import Any

from tests.unit.frontends.in_memory import NOW_MS
from tests.unit.services.transactions.serving import P0, P1, Serving, a_machine, serving
from tests.unit.storage.transactions import transactional
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.server.metrics_cluster import ClusterCollector, unsettled

HANGING = 77


def told(serves: Serving) -> dict[str, float]:
    """By name, or by state."""
    found: dict[str, float] = {}
    for family in ClusterCollector(serves.asked.broker).collect():
        for sample in family.samples:
            is_bucket = "le" in sample.labels
            if ("transaction" in family.name or "stable" in family.name) and not is_bucket:
                found[sample.labels.get("state", sample.name)] = sample.value
    return found


async def test_where_nobody_has_transactions_there_is_nothing_to_tell() -> None:
    async with serving(a_machine()) as serves:
        assert set(told(serves).values()) == {0}


async def test_transactions_are_counted_by_how_they_end_and_by_how_far_they_are() -> None:
    async with serving(a_machine()) as serves:
        for number, committed in enumerate((True, True, False)):
            name = f"tx-{number}"
            _, producer_id, epoch = await serves.init(name)
            await serves.add(producer_id, epoch, P0, P1, transactional_id=name)
            await serves.end(producer_id, epoch, committed=committed, name=name)
        await until(lambda: told(serves)["penstock_transactions_committed_total"] == 2)
        await until(lambda: told(serves)["penstock_transactions_aborted_total"] == 1)
        await serves.begun(P0)
        found = told(serves)
        assert (found["ongoing"], found["complete_commit"], found["complete_abort"]) == (1, 2, 1)


async def test_the_oldest_that_is_open_is_told_until_it_has_all_its_markers() -> None:
    async with serving(a_machine()) as serves:
        later: Any = serves.asked.services.clock
        await serves.begun(P0)
        await serves.init("idle")
        later.now_ms = lambda: NOW_MS + 7_500
        assert told(serves)["penstock_oldest_transaction_seconds"] == 7.5
        serves.writer.open.clear()
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        assert told(serves)["penstock_oldest_transaction_seconds"] == 7.5
        serves.writer.open.set()
        await until(lambda: told(serves)["penstock_oldest_transaction_seconds"] == 0)


async def test_what_waits_for_a_transaction_is_told_and_when_it_is_late() -> None:
    async with serving(a_machine()) as serves:
        serves.asked.append("orders", transactional((HANGING, 0, 0), 3))
        serves.asked.append("orders", transactional((HANGING + 1, 0, 0)), 1)
        assert told(serves)["penstock_last_stable_offset_lag_records"] == 3
        partitions = list(serves.asked.services.table.partitions())
        written_ms = serves.asked.partition("orders").log.producers.copy()[0].last_timestamp
        five_minutes = 5 * 60_000
        assert unsettled(partitions, written_ms + five_minutes) == (3, 0)
        assert unsettled(partitions, written_ms + five_minutes + 1) == (3, 2)


async def test_how_long_leaders_wait_for_coordinators_is_told() -> None:
    async with serving(a_machine()) as serves:
        producer_id, epoch = await serves.begun(P0)
        verifier = serves.asked.services.verifier
        for adds in (False, True):
            told_of = await verifier.verify("tx", producer_id, epoch, [P0], adds=adds)
            assert told_of == {P0: ErrorCode.NONE}
        assert told(serves)["penstock_transaction_verification_seconds_count"] == 2
