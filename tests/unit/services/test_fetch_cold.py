"""A fetch of partitions whose files have to be opened first."""

import asyncio

from tests.unit.frontends.in_memory import Machine
from tests.unit.services.test_upkeep import filled

from penstock.core.error_codes import ErrorCode
from penstock.services.fetch_sessions import FetchSession
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest, TopicAnswer


async def test_a_file_that_cannot_be_opened_is_in_the_way_of_no_other() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        for name in ("bad", "good"):
            await filled(asked, name)
        while machine.files.descriptors.close_some():
            pass
        machine.files.fail_next("open", "*/bad/*", count=100)
        done: asyncio.Future[list[TopicAnswer]] = asyncio.get_running_loop().create_future()

        def answered(topics: list[TopicAnswer], session: FetchSession | None) -> None:
            done.set_result(topics)

        wanted = [(name, [FetchPartition(0, -1, 0, -1, -1, 1000)]) for name in (b"bad", b"good")]
        asked.services.fetch.fetch(FetchRequest(-1, -1, 0, 1, 1000, 0, 0, -1, wanted, [], b""), 11, answered)
        async with asyncio.timeout(5):
            (_, (bad,)), (_, (good,)) = await done
        assert bad.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert good.size
