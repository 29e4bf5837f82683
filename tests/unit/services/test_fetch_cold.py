"""A fetch of partitions whose files have to be opened first, or that no answer may hold any more."""

import asyncio

from tests.integration.raw import make_batch
from tests.unit.frontends.in_memory import Machine
from tests.unit.services.maintenance.test_upkeep import filled

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import LENT_FILES_SHARE, SLICE_BYTES_MIN
from penstock.frontends.kafka.fetch_sessions import FetchSession
from penstock.services.fetching.found import FoundInTopic
from penstock.storage.segment import Slice
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest


async def test_a_file_that_cannot_be_opened_is_in_the_way_of_no_other() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        for name in ("bad", "good"):
            await filled(asked, name)
        while machine.files.descriptors.close_some():
            pass
        machine.files.fail_next("open", "*/bad/*", count=100)
        done: asyncio.Future[list[FoundInTopic]] = asyncio.get_running_loop().create_future()

        def answered(topics: list[FoundInTopic], session: FetchSession | None) -> None:
            done.set_result(topics)

        wanted = [(name, [FetchPartition(0, -1, 0, -1, -1, 1000)]) for name in (b"bad", b"good")]
        asked.fetch(FetchRequest(-1, -1, 0, 1, 1000, 0, 0, -1, wanted, [], b""), 11, answered)
        async with asyncio.timeout(5):
            (_, (bad,)), (_, (good,)) = await done
        assert bad.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert good.size


async def test_where_answers_hold_too_many_files_one_batch_is_copied() -> None:
    machine = Machine()
    large, small = bytes(SLICE_BYTES_MIN), bytes(SLICE_BYTES_MIN // 3)
    async with machine.broker() as asked:
        for name, value in (("large", large), ("small", small)):
            await asked.create(name)
            for _ in range(4):
                asked.append(name, bytearray(make_batch([value])))
        wanted = [(name, [FetchPartition(0, -1, 0, -1, -1, 1 << 20)]) for name in (b"large", b"small")]

        def fetched(wanted: list[tuple[bytes, list[FetchPartition]]]) -> list[object]:
            found: list[list[FoundInTopic]] = []
            request = FetchRequest(-1, -1, 0, 1, 1 << 20, 0, 0, -1, wanted, [], b"")
            asked.fetch(request, 11, lambda topics, _: found.append(topics))
            return [partition.records for _, partitions in found[0] for partition in partitions]

        descriptors = machine.files.descriptors
        assert all(isinstance(piece, Slice) for piece in fetched(wanted))
        descriptors.lent = int(descriptors.files_max * LENT_FILES_SHARE)
        records, nothing = fetched(wanted)
        assert isinstance(records, bytes)
        assert len(records) == len(make_batch([large]))
        assert nothing is None
        (records,) = fetched(wanted[1:])
        assert isinstance(records, Slice)
        assert records.size < SLICE_BYTES_MIN, "which is read when it has to wait"
