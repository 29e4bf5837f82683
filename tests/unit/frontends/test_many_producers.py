"""Idempotent producers that are too many for the broker: what Produce answers them, and what makes room again."""

from collections.abc import Iterable

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine, StandingClock
from tests.unit.frontends.test_produce import VERSION, a_request, answers

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PRODUCER_QUIET_MS_MIN
from penstock.records.builder import BatchOptions
from penstock.storage.producer_budget import ProducerBudget
from penstock.wire.kafka.api_keys import ApiKey

MOST = 8
REFUSED = ErrorCode.POLICY_VIOLATION


def produce(asked: Asked, topic: str, producers: Iterable[int], sequence: int = 0) -> list[int]:
    """The error of each producer's batch; they write to three partitions, in turns."""
    client = Connected(asked)
    errors = []
    for producer in producers:
        options = BatchOptions(producer_id=producer, producer_epoch=0, base_sequence=sequence)
        request = a_request((topic, producer % 3, bytes(make_batch([b"x"], options))))
        ((_, _, error, _),) = answers(client.ask(ApiKey.PRODUCE, VERSION, request).answer)
        errors.append(error)
    return errors


async def crowded(asked: Asked, reserve: int = 0) -> ProducerBudget:
    """As many as the broker remembers, in all partitions of a topic; and another topic."""
    budget = asked.broker.table.producers = ProducerBudget(MOST, reserve)
    for name in ("t", "other"):
        await asked.create(name, {"penstock.ack.after": "written"}, partitions=3)
    assert produce(asked, "t", range(MOST)) == [0] * MOST
    return budget


async def test_new_ones_are_refused_in_every_partition_and_known_ones_go_on() -> None:
    async with Machine().broker() as asked:
        budget = await crowded(asked)
        assert produce(asked, "t", range(10, 13)) == [REFUSED] * 3
        assert produce(asked, "other", range(10, 13)) == [REFUSED] * 3
        assert produce(asked, "t", range(MOST), sequence=1) == [0] * MOST
        assert asked.partition("t").log.end_offset == 6
        assert produce(asked, "t", range(MOST), sequence=1) == [0] * MOST
        assert asked.partition("t").log.end_offset == 6, "repeats"
        assert budget.known == MOST


async def test_partitions_that_remember_few_take_new_ones() -> None:
    async with Machine().broker() as asked:
        await crowded(asked, reserve=6)
        assert produce(asked, "t", range(10, 13)) == [REFUSED] * 3
        assert produce(asked, "other", range(10, 16)) == [0] * 3 + [REFUSED] * 3


async def test_who_is_not_idempotent_is_not_counted() -> None:
    async with Machine().broker() as asked:
        await crowded(asked)
        assert produce(asked, "t", [-1], sequence=-1) == [0]


async def test_a_deleted_topic_makes_room() -> None:
    async with Machine().broker() as asked:
        budget = await crowded(asked)
        await asked.broker.metadata.delete_topic("t")
        await asked.broker.hosting.reconcile()
        assert (budget.known, budget.logs) == (0, 3)
        assert produce(asked, "other", range(10, 13)) == [0] * 3


async def test_upkeep_makes_room_in_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Machine().broker() as asked:
        budget = await crowded(asked)
        assert produce(asked, "other", [10]) == [REFUSED]
        topic = asked.broker.table.by_name[b"t"]
        for after_ms in (0, PRODUCER_QUIET_MS_MIN):
            monkeypatch.setattr(StandingClock, "now_ms", lambda _, now_ms=NOW_MS + after_ms: now_ms)
            for partition in topic.partitions.values():
                await asked.broker.upkeep.tend(topic, partition)
        assert budget.known == MOST // 2
        assert produce(asked, "other", [10]) == [0]


async def test_a_log_that_is_opened_again_counts_once() -> None:
    async with Machine().broker() as asked:
        budget = await crowded(asked)
        asked.partition("t").log.sync_failed()
        hosting = asked.broker.hosting
        await hosting.reopen_failed(hosting.failed_logs())
        await hosting.reconcile()
        assert (budget.known, budget.logs) == (MOST, 6)
        assert produce(asked, "t", [0], sequence=1) == [0]


async def test_what_a_start_finds_is_counted_and_known() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await crowded(asked)
    async with machine.broker() as asked:
        assert asked.broker.table.producers.known == MOST
        assert produce(asked, "t", range(MOST), sequence=1) == [0] * MOST
