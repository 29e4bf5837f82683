"""aiokafka, on an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from tests.integration.scenarios.drivers.base import CONSUME_DEADLINE_S, PythonDriver, error
from tests.integration.scenarios.records import Consumed, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

_TOPIC_SOURCE = 1


async def _within(deadline: float, wait: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(wait, deadline)


class AiokafkaDriver(PythonDriver):
    name = "aiokafka"
    gaps: ClassVar[Mapping[str, str]] = {
        "incremental_alter_config": "aiokafka has no IncrementalAlterConfigs",
        "describe_log_dirs": "aiokafka has no DescribeLogDirs",
        "describe_producers": "aiokafka has no DescribeProducers",
        "admin_incremental_configs": "aiokafka has no IncrementalAlterConfigs",
        "admin_log_dirs": "aiokafka has no DescribeLogDirs",
        "admin_producers": "aiokafka has no DescribeProducers",
        "admin_max_timestamp": "aiokafka's consumer asks for times, first and last offsets only",
    }

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        return self._runner.run(self._run(op, bootstrap, args))

    async def _run(self, op: str, bootstrap: str, args: dict[str, Any]) -> Any:
        try:
            return await getattr(self, op)(bootstrap, **args)
        except KafkaError as failure:
            return error(failure.errno)

    async def produce(
        self,
        bootstrap: str,
        *,
        topic: str,
        partition: int,
        records: Sequence[Record],
        compression: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_records: int = 0,
        max_request_bytes: int = 1 << 20,
    ) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks,
            enable_idempotence=idempotent,
            max_batch_size=batch_records * 220 if batch_records else 16_384,
            max_request_size=max_request_bytes,
            linger_ms=5,
        )
        async with producer:
            futures = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await producer.flush()
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
        return error(failures[0].errno) if failures else {"acknowledged": len(outcomes)}

    def _consumer(self, bootstrap: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=4 << 20
        )

    async def consume(self, bootstrap: str, *, topic: str, partition: int, offset: int, count: int) -> Any:
        where = TopicPartition(topic, partition)
        found: list[Consumed] = []
        async with self._consumer(bootstrap) as consumer:
            consumer.assign([where])
            consumer.seek(where, offset)
            while len(found) < count:
                record = await _within(CONSUME_DEADLINE_S, consumer.getone(where))
                found.append(
                    Consumed(record.offset, record.value, record.key, record.headers, record.timestamp)
                )
        return found

    async def offset_for_time(
        self, bootstrap: str, *, topic: str, partition: int, timestamp: int
    ) -> int | None:
        where = TopicPartition(topic, partition)
        async with self._consumer(bootstrap) as consumer:
            consumer.assign([where])
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
        return None if found is None else int(found.offset)

    async def list_offsets(self, bootstrap: str, *, topic: str, partition: int, at: str | int) -> Any:
        where = TopicPartition(topic, partition)
        async with self._consumer(bootstrap) as consumer:
            consumer.assign([where])
            if at == "earliest":
                return {"offset": (await consumer.beginning_offsets([where]))[where]}
            if at == "latest":
                return {"offset": (await consumer.end_offsets([where]))[where]}
            return {"offset": (await consumer.offsets_for_times({where: at}))[where].offset}

    async def _first_error(self, answer: Any, field: str) -> Any:
        codes = [code for _, code, *_ in getattr(answer, field) if code]
        return error(codes[0]) if codes else "ok"

    async def create_topic(
        self,
        bootstrap: str,
        *,
        topic: str,
        partitions: int,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
    ) -> Any:
        async with _admin(bootstrap) as admin:
            wanted = NewTopic(topic, partitions, replicas, topic_configs=configs or {})
            return await self._first_error(await admin.create_topics([wanted]), "topic_errors")

    async def delete_topic(self, bootstrap: str, *, topic: str) -> Any:
        async with _admin(bootstrap) as admin:
            return await self._first_error(await admin.delete_topics([topic]), "topic_error_codes")

    async def list_topics(self, bootstrap: str) -> list[str]:
        async with _admin(bootstrap) as admin:
            return list(await admin.list_topics())

    async def describe_topic(self, bootstrap: str, *, topic: str) -> Any:
        async with _admin(bootstrap) as admin:
            (found,) = await admin.describe_topics([topic])
        if found["error_code"]:
            return error(found["error_code"])
        partitions = sorted(found["partitions"], key=lambda partition: partition["partition"])
        return {
            "partitions": [
                {"id": partition["partition"], "leader": partition["leader"], "isr": partition["isr"]}
                for partition in partitions
            ]
        }

    async def create_partitions(self, bootstrap: str, *, topic: str, count: int) -> Any:
        async with _admin(bootstrap) as admin:
            await admin.create_partitions({topic: NewPartitions(count)})
        return "ok"

    async def _entries(self, bootstrap: str, topic: str) -> dict[str, Any]:
        async with _admin(bootstrap) as admin:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        (resource,) = answer.resources
        return {name: (value, source) for name, value, _read_only, source, *_ in resource[4]}

    async def describe_config(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = await self._entries(bootstrap, topic)
        return {name: entries[name][0] for name in names}

    async def describe_default(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = await self._entries(bootstrap, topic)
        return {name: entries[name][1] != _TOPIC_SOURCE for name in names}

    async def alter_config(self, bootstrap: str, *, topic: str, configs: dict[str, str]) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        async with _admin(bootstrap) as admin:
            (answer,) = await admin.alter_configs([resource])
        codes = [code for code, *_ in answer.resources if code]
        return error(codes[0]) if codes else "ok"

    async def delete_records(self, bootstrap: str, *, topic: str, partition: int, before: int) -> Any:
        where = TopicPartition(topic, partition)
        async with _admin(bootstrap) as admin:
            result = await admin.delete_records({where: RecordsToDelete(before)})
        return {"low_watermark": result[where]}

    async def describe_cluster(self, bootstrap: str) -> Any:
        async with _admin(bootstrap) as admin:
            found = await admin.describe_cluster()
        nodes = [{"id": broker["node_id"], "host": broker["host"]} for broker in found["brokers"]]
        return {"cluster_id": found["cluster_id"], "controller": found["controller_id"], "nodes": nodes}


class _admin:  # noqa: N801  (used as a verb: `async with _admin(bootstrap)`)
    """aiokafka's admin client for the length of one operation."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)

    async def __aenter__(self) -> AIOKafkaAdminClient:
        await self._client.start()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
