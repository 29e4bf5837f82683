"""WriteTxnMarkers, also of brokers, for producers that are none, or ever new ones: log and relays are left alone."""

import asyncio

import pytest
from tests.unit.frontends.group_requests import machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.frontends.transactional_commits import PRODUCER, serving, shard, txn_commit
from tests.unit.storage.logs import a_batch
from tests.unit.storage.transactions import transactional
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.records.batch import read_header
from penstock.records.relay import NAMED_IDS, RELAY_IDS, RelayPlace, position_batch, retired_source
from penstock.replication.partition import Partition
from penstock.replication.transactions import MarkerToWrite, check_transactional, guard_for
from penstock.services.acknowledging import until_committed
from penstock.storage import producers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import write_txn_markers

ENABLED = {"penstock.transactions.enable": "true"}
RELAYS = pytest.mark.parametrize("producer_id", [RELAY_IDS, NAMED_IDS], ids=["of a partition", "by a name"])


async def mark(asked: Asked, producer_id: int, epoch: int = 0) -> ErrorCode:
    topic = write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[topic],
        coordinator_epoch=0,
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    answer = await asked.ask(ApiKey.WRITE_TXN_MARKERS, request, 1, broker=2)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def orders(asked: Asked) -> Partition:
    return asked.services.table.find("orders", 0)


async def test_a_marker_says_nothing_of_a_relay() -> None:
    """Or its source, when it asks again, would move all of it once more."""
    async with serving(machine(ENABLED)) as (asked, _):
        await prepared(asked)
        partition, source = orders(asked), retired_source(1)
        batch = position_batch(source, RelayPlace(3, 57), 0, skips=True)
        partition.append_relayed(memoryview(batch), read_header(batch), 0)
        relays = partition.log.producers.relays
        told = await mark(asked, read_header(batch).producer_id)
        known = relays.get(source)
        assert known is not None
        assert (told, known.place) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, RelayPlace(3, 57))


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (-1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (RELAY_IDS, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (NAMED_IDS, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (2**63 - 1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_is_refused_is_not_in_the_log(producer_id: int, epoch: int, code: ErrorCode) -> None:
    disk = machine(ENABLED)
    async with serving(disk) as (asked, _):
        await prepared(asked)
        end = orders(asked).log.end_offset
        assert await mark(asked, producer_id, epoch) is code
        assert orders(asked).log.end_offset == end
    async with serving(disk) as (asked, _):
        assert orders(asked).log.end_offset == end


@RELAYS
async def test_what_is_acknowledged_behind_it_is_there_after_a_kill(producer_id: int) -> None:
    disk = machine(ENABLED)
    async with serving(disk) as (asked, _):
        await prepared(asked)
        marking = asyncio.create_task(mark(asked, producer_id))
        partition = orders(asked)
        batch = a_batch()
        last = partition.append(memoryview(batch), read_header(batch), 0)[1]
        await until_committed(partition, last, 2)
        end = partition.log.end_offset
        await marking
        partition.log.sync_job(checkpoint=True)  # what every checkpoint and every clean stop begins with
    async with serving(disk) as (asked, _):
        assert orders(asked).log.end_offset == end


async def test_markers_of_ever_new_producers_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is known has its markers written as ever."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 10)
    async with serving(machine(ENABLED)) as (asked, _):
        await prepared(asked)
        log, known = orders(asked).log, 20
        batch = transactional((known, 0, 0))
        orders(asked).append(memoryview(batch), read_header(batch), 0)
        assert [await mark(asked, number) for number in range(known)] == [ErrorCode.NONE] * known
        assert len(log.producers) == log.end_offset == 10
        assert log.producers.in_transaction(known, 0)
        assert await mark(asked, known) is ErrorCode.NONE
        assert (log.end_offset, log.producers.in_transaction(known, 0)) == (11, False)


async def test_a_marker_that_somebody_waits_for_is_written_however_many_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(machine(ENABLED)) as (asked, _):
        await prepared(asked)
        leader = orders(asked)
        header = read_header(transactional((7, 0, 0)))
        guard = guard_for(leader, header, is_second=False)
        monkeypatch.setattr(producers, "PRODUCERS_MAX", 0)
        assert await mark(asked, 7) is ErrorCode.NONE
        with pytest.raises(ApiError):
            check_transactional(leader, header, guard)


async def test_a_group_knows_of_a_marker_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks whether a transaction is open, while its marker comes, opens none."""
    async with serving(machine(ENABLED)) as (asked, coordinator):
        await prepared(asked)
        here = shard(asked)
        monkeypatch.setattr(producers, "PRODUCERS_MAX", 0)
        coordinator.answers.clear()
        committing = asyncio.create_task(txn_commit(asked))
        await until(lambda: bool(coordinator.asked))
        end, marker = here.partition.log.end_offset, MarkerToWrite(PRODUCER, 0, True, 0, 1)
        write = asked.services.marker_writer.write
        assert await write(OFFSETS_TOPIC, here.partition.index, marker) is ErrorCode.NONE
        assert here.partition.log.end_offset == end
        coordinator.answers.set()
        assert await committing == ErrorCode.INVALID_TXN_STATE
