"""Answers to questions of before: whoever asked may have let the partition go and taken it back meanwhile."""

import asyncio
from types import SimpleNamespace

from tests.unit.storage.logs import opened

from penstock.replication.fetcher import Fetcher
from penstock.replication.partition import Partition
from penstock.testing.mem_files import MemFiles
from penstock.wire.kafka.generated.fetch import PartitionData


class Follower:
    def __init__(self) -> None:
        self.taken: list[PartitionData] = []

    async def take(self, _: Partition, __: int, answer: PartitionData, ___: object) -> bool:
        self.taken.append(answer)
        return True


def test_an_answer_is_taken_by_who_asked_and_not_after_the_log_was_opened_again() -> None:
    """One answer holds several partitions; while one is taken over, the log of the next may come to end elsewhere."""

    async def story() -> None:
        follower = Follower()
        fetcher = Fetcher(
            SimpleNamespace(
                follower=follower,
                node=2,
                config=SimpleNamespace(follower_replication_throttled_rate=2**63 - 1),
            ),
            1,
        )  # type: ignore[arg-type]
        partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 5, None, sync_before_ack=False)  # type: ignore[arg-type]
        fetcher.add(partition, 7)
        asked = fetcher.partitions[partition]
        answer = PartitionData(partition_index=0)
        await fetcher._take(partition, asked, answer)
        assert follower.taken == [answer]
        await fetcher.remove(partition)
        await fetcher._take(partition, asked, answer)
        fetcher.add(partition, 7)  # the same leader, in the same epoch
        await fetcher._take(partition, asked, answer)
        assert follower.taken == [answer]
        await fetcher._take(partition, fetcher.partitions[partition], answer)
        assert follower.taken == [answer, answer]

    asyncio.run(story())
