"""Readers of what transactional producers commit in a simulated cluster: of records, and of groups' offsets."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.sim.cluster_clients import LEADERS_ONLY, PASSING, ClusterClient, Violation
from tests.sim.group_client import GroupClient
from tests.sim.messages import NETWORK_TROUBLE, TOPIC, fetch_request
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactional_clients import ELSEWHERE, group_of

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import HEADER_BYTES, BatchHeader
from penstock.records.control import transaction_end
from penstock.records.reader import Record, iter_batches, payload_of, records_in
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import offset_fetch


class NearClient(ClusterClient):
    """Reads from one broker, whether it leads or follows."""

    def __init__(self, names: Sequence[str], rng: Random, name: str) -> None:
        super().__init__(names, rng)
        self._near = name

    async def ask_leader(self, partition: int, api: ApiKey, request: Any, version: int | None = None) -> Any:
        await self.epoch(partition)
        try:
            return await self._clients[self._near].call(api, request)
        except NETWORK_TROUBLE:
            self.forget(partition)
            raise


class Reader:
    """Keeps its place in one partition; with `committed` it is shown only what was committed."""

    def __init__(
        self, history: TransactionHistory, client: ClusterClient, partition: int, *, committed: bool
    ) -> None:
        self._history = history
        self._client = client
        self._partition = partition
        self._committed = committed
        self.offset = 0
        self.end = -1  # up to where there was something to read, when it last asked
        self.found: dict[int, bytes] = {}

    async def follow(self) -> None:
        while True:
            if not await self.step(100):
                await asyncio.sleep(0.05)

    async def to_the_end(self) -> dict[int, bytes]:
        while True:
            if not await self.step(0):
                await asyncio.sleep(0.02)
            elif self.offset >= self.end:
                return self.found

    async def step(self, max_wait_ms: int) -> bool:
        """False: nobody could tell."""
        partition = self._partition
        try:
            epoch = await self._client.epoch(partition)
            request = fetch_request(
                partition, self.offset, epoch=epoch, max_wait_ms=max_wait_ms, isolation=int(self._committed)
            )
            answered = await self._client.ask_leader(partition, ApiKey.FETCH, request, LEADERS_ONLY)
        except NETWORK_TROUBLE:
            return False
        answer = answered.responses[0].partitions[0]
        if answer.error_code in PASSING:
            self._client.forget(partition)
            return False
        if answer.error_code != ErrorCode.NONE:
            raise Violation(f"a reader at {self.offset} was told {ErrorCode(answer.error_code).name}")
        if answer.last_stable_offset > answer.high_watermark:
            raise Violation(f"last stable offset {answer.last_stable_offset} above {answer.high_watermark}")
        self.end = answer.last_stable_offset if self._committed else answer.high_watermark
        self._read(bytes(answer.records or b""), answer.aborted_transactions or [])
        return True

    def _read(self, data: bytes, aborted: list[Any]) -> None:
        partition = self._partition
        firsts = [(each.first_offset, each.producer_id) for each in aborted]
        if firsts != sorted(firsts):
            raise Violation(f"aborted transactions are not in their order: {firsts}")
        left_out: set[int] = set()
        for header, records in _batches(data):
            if header.last_offset < self.offset:
                continue
            if header.base_offset > self.offset or header.last_offset >= self.end:
                raise Violation(
                    f"a reader of {partition} at {self.offset} was given {header.base_offset} to "
                    f"{header.last_offset}, and told of an end at {self.end}"
                )
            while firsts and firsts[0][0] <= header.last_offset:
                left_out.add(firsts.pop(0)[1])
            if header.is_control:
                if transaction_end(records[0].key) is False:
                    left_out.discard(header.producer_id)
            elif not (self._committed and header.producer_id in left_out):
                self._show(records)
            self.offset = header.last_offset + 1

    def _show(self, records: list[Record]) -> None:
        for record in records:
            if record.offset < self.offset:
                continue
            value = record.value or b""
            if self._committed:
                self._history.showed(self._partition, record.offset, value)
            else:
                self._history.wrote(self._partition, record.offset, value)
            self.found[record.offset] = value


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, list[Record]]]:
    if len(data) > HEADER_BYTES:
        for position, header in iter_batches(data):
            yield header, list(records_in(header, payload_of(data, position, header)))


async def fetch_offset(client: GroupClient, number: int) -> int:
    """The offset that is committed with the producer's transactions; -1: none. Waits for one that is open."""
    topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id=group_of(number), topics=[topic])
    request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
    while True:
        try:
            answer = await client.call(ApiKey.OFFSET_FETCH, request)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        told = answer.groups[0]
        if told.error_code == ErrorCode.NONE:
            partition = told.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE:
                return int(partition.committed_offset)
            if partition.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise Violation(f"a group was told {ErrorCode(partition.error_code).name}")
        elif told.error_code in ELSEWHERE:
            client.coordinator = None
        else:
            raise Violation(f"a group was told {ErrorCode(told.error_code).name}")
        await asyncio.sleep(0.05)


async def watch_offset(history: TransactionHistory, client: GroupClient, number: int, rng: Random) -> None:
    while True:
        history.fetched_offset(number, await fetch_offset(client, number))
        await asyncio.sleep(rng.uniform(0.05, 0.5))
