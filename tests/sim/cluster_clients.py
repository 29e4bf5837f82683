"""Clients of a simulated cluster, which find their leaders themselves, and what they saw, checked as they see it."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.sim.messages import (
    NETWORK_TROUBLE,
    PARTITIONS,
    TOPIC,
    batch_of,
    create_request,
    fetch_request,
    idempotent,
    numbered,
    produce_request,
    records_of,
)

from penstock.core.error_codes import ErrorCode
from penstock.records.reader import Record
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import metadata

LEADERS_ONLY = 10  # the last version of Fetch that followers do not answer
# What a client may be told in a cluster where brokers come and go; it looks for the leader again.
PASSING = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}


class Violation(AssertionError):  # noqa: N818 - what it is, not what went wrong in the code
    """An invariant does not hold."""


class History:
    """What the clients saw, checked as they see it."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value
        self.seen: dict[tuple[int, int], bytes] = {}
        self.leaders: dict[tuple[str, int, int], int] = {}  # (topic, partition, epoch) -> broker
        self.sent = 0
        self.wrong: list[str] = []  # what was seen where nobody hears of an error

    def acked(self, partition: int, offset: int, value: bytes) -> None:
        before = self.acknowledged.setdefault((partition, offset), value)
        if before != value:
            raise Violation(f"offset {offset} of {partition} was acknowledged for {before!r} and {value!r}")

    def saw(self, partition: int, offset: int, value: bytes) -> None:
        before = self.seen.setdefault((partition, offset), value)
        if before != value:
            raise Violation(f"offset {offset} of {partition} showed {before!r}, now {value!r}")

    def leads(self, topic: str, partition: int, epoch: int, broker: int) -> None:
        before = self.leaders.setdefault((topic, partition, epoch), broker)
        if before != broker:
            raise Violation(f"{topic}-{partition} has two leaders in epoch {epoch}: {before} and {broker}")


class ClusterClient:
    """Knows the brokers' names, asks one of them who leads what, and forgets it when something goes wrong.

    As real clients do, it keeps the latest leader epoch that it heard of, and believes nobody who knows of less: one
    that was replaced and has not heard of it would tell a reader that what its successor committed is out of range.
    """

    def __init__(self, names: Sequence[str], rng: Random, timeout_s: float = 2.0) -> None:
        self._names = list(names)
        self._rng = rng
        self._clients = {name: SimClient(name, PORT, timeout_s) for name in names}
        self._leaders: dict[int, str] = {}
        self._epochs: dict[int, int] = {}

    async def ask_any(self, api: ApiKey, request: Any) -> Any:
        return await self._clients[self._rng.choice(self._names)].call(api, request)

    async def ask_leader(self, partition: int, api: ApiKey, request: Any, version: int | None = None) -> Any:
        await self.epoch(partition)
        try:
            return await self._clients[self._leaders[partition]].call(api, request, version)
        except NETWORK_TROUBLE:
            self.forget(partition)
            raise

    async def epoch(self, partition: int) -> int:
        """The leader epoch to ask with; finds the leader where it is not known."""
        if partition not in self._leaders:
            await self._refresh(partition)
        return self._epochs.get(partition, -1)

    def knows(self, partition: int, leader: str) -> None:
        self._leaders[partition] = leader

    def forget(self, partition: int) -> None:
        self._leaders.pop(partition, None)

    async def _refresh(self, partition: int) -> None:
        wanted = metadata.MetadataRequestTopic(name=TOPIC)
        request = metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        answer = await self.ask_any(ApiKey.METADATA, request)
        hosts = {broker.node_id: broker.host for broker in answer.brokers}
        for answered in answer.topics[0].partitions:
            is_news = answered.leader_epoch >= self._epochs.get(partition, -1)
            if answered.partition_index == partition and answered.leader_id in hosts and is_news:
                self._leaders[partition] = hosts[answered.leader_id]
                self._epochs[partition] = answered.leader_epoch
                return
        raise ConnectionRefusedError("nobody leads the partition")


async def create_topic(
    client: ClusterClient, replicas: int, configs: dict[str, str], name: str = TOPIC
) -> None:
    request = create_request(configs, name=name, replicas=replicas)
    while True:
        try:
            answer = await client.ask_any(ApiKey.CREATE_TOPICS, request)
            code = ErrorCode(answer.topics[0].error_code)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        except NETWORK_TROUBLE:
            pass
        await asyncio.sleep(0.1)


async def write(history: History, client: ClusterClient, number: int, rng: Random) -> None:
    """One idempotent producer: never a new batch before the last one is acknowledged."""
    partition = number % PARTITIONS
    sequence = 0
    while True:
        values = numbered(number, sequence, rng.randint(1, 4))
        history.sent += len(values)
        batch = batch_of(values, idempotent(number, sequence))
        base = await send_until_acknowledged(client, partition, batch)
        for i, value in enumerate(values):
            history.acked(partition, base + i, value)
        sequence += len(values)
        await asyncio.sleep(rng.choice([0.0, 0.02, 0.1, 0.3, 0.5]))


async def send_until_acknowledged(client: ClusterClient, partition: int, batch: bytes) -> int:
    request = produce_request(partition, batch)
    while True:
        try:
            answered = await client.ask_leader(partition, ApiKey.PRODUCE, request)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        answer = answered.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            return int(answer.base_offset)
        if answer.error_code not in PASSING:
            raise Violation(f"a producer was told {ErrorCode(answer.error_code).name}")
        client.forget(partition)
        await asyncio.sleep(0.05)


async def fetch_once(
    client: ClusterClient, partition: int, offset: int, max_wait_ms: int
) -> tuple[list[Record], int]:
    """Records from `offset` on and the high watermark; -1 when nobody could tell."""
    epoch = await client.epoch(partition)
    request = fetch_request(partition, offset, epoch=epoch, max_wait_ms=max_wait_ms)
    answered = await client.ask_leader(partition, ApiKey.FETCH, request, LEADERS_ONLY)
    answer = answered.responses[0].partitions[0]
    if answer.error_code in PASSING:
        client.forget(partition)
        return [], -1
    if answer.error_code != ErrorCode.NONE:
        raise Violation(f"a reader at {offset} was told {ErrorCode(answer.error_code).name}")
    return records_of(answer, offset), answer.high_watermark


async def follow(history: History, client: ClusterClient, partition: int) -> None:
    """A consumer that keeps its place: it never skips and never goes back."""
    offset = 0
    while True:
        try:
            records, high_watermark = await fetch_once(client, partition, offset, 100)
        except NETWORK_TROUBLE:
            high_watermark, records = -1, []
        if high_watermark < 0:
            await asyncio.sleep(0.05)
        for record in records:
            if record.offset != offset:
                raise Violation(f"a reader of {partition} at {offset} was given {record.offset}")
            history.saw(partition, record.offset, record.value or b"")
            offset = record.offset + 1


async def read_partition(client: ClusterClient, partition: int) -> list[bytes]:
    values: list[bytes] = []
    while True:
        try:
            records, high_watermark = await fetch_once(client, partition, len(values), 0)
        except NETWORK_TROUBLE:
            await asyncio.sleep(0.05)
            continue
        for record in records:
            if record.offset != len(values):
                raise Violation(f"partition {partition} has a gap at {len(values)}")
            values.append(record.value or b"")
        if len(values) >= high_watermark >= 0:
            return values
