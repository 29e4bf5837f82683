"""Requests that take long: offsets by time in batches that are slow to open. Others are served meanwhile."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, make_batch, produced

from penstock.records.builder import BatchOptions, build_batch
from penstock.records.compression import Codec
from penstock.records.reader import Record
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.kafka.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

VERSION = 6
TIMES = 1000
RECORDS = 100_000
FIRST_MS = 1_000_000
NAME_BYTES = 240  # nearly the longest there is


@pytest.fixture(scope="module")
def batch() -> bytearray:
    records = [
        Record(offset=number, timestamp=FIRST_MS + number, key=None, value=b"") for number in range(RECORDS)
    ]
    return build_batch(records, BatchOptions(codec=Codec.ZSTD))


def asked_of(topic: str, partitions: int, unknown: int = 0) -> ListOffsetsRequest:
    """The last times in each partition, over and over, and names of topics that do not exist to fill it up."""
    wanted = [
        ListOffsetsPartition(partition_index=number % partitions, timestamp=FIRST_MS + RECORDS - 1 - number)
        for number in range(TIMES * partitions)
    ]
    names = [f"{number:06}".rjust(NAME_BYTES, "x") for number in range(unknown)]
    topics = [ListOffsetsTopic(name=topic, partitions=wanted)]
    return ListOffsetsRequest(topics=topics + [ListOffsetsTopic(name=name, partitions=[]) for name in names])


def ask_for_times(
    scene: Scene, batch: bytearray, partitions: int, clients: int, then: Callable[[RawClient], None]
) -> None:
    with RawClient(scene.port) as client, ExitStack() as links:
        assert create_topic(client, "times", partitions).error_code == 0
        for partition in range(partitions):
            assert produced(client, "times", batch, partition=partition).error_code == 0
        for number, unknown in ((4, 0), (clients, 12_000)):
            asking = links.enter_context(RawClient(scene.port))
            frame = asking.frame(ApiKey.LIST_OFFSETS, VERSION, asked_of("times", partitions, unknown))
            for _ in range(number):
                link = links.enter_context(RawClient(scene.port))
                with suppress(OSError):  # it is turned away
                    link.send_bytes(frame)
            then(client)


def is_served(client: RawClient) -> None:
    partitions = list(range(2400))
    request = OffsetFetchRequest(
        group_id="good", topics=[OffsetFetchRequestTopic(name="times", partition_indexes=partitions)]
    )
    client.call(ApiKey.OFFSET_FETCH, 7, request)  # whatever it is told
    assert produced(client, "times", make_batch([bytes(900_000)])).error_code == 0


def test_times_in_large_batches_hold_up_neither_lookups_nor_producers(scene: Scene, batch: bytearray) -> None:
    ask_for_times(scene, batch, 3, 40, is_served)
    unhurt(scene, Bounds(memory_peak_bytes=256 * MEGABYTE, memory_after_bytes=96 * MEGABYTE))


@pytest.mark.soak
def test_many_times_in_large_batches_hold_up_neither_lookups_nor_producers(
    scene: Scene, batch: bytearray
) -> None:
    ask_for_times(scene, batch, 50, 60, is_served)
    bounds = replace(
        STRICT, memory_peak_bytes=512 * MEGABYTE, descriptors_after=80
    )  # a file for each partition
    unhurt(scene, replace(bounds, p99_ms=1000.0, stall_s=0.5))
