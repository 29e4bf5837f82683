"""A full disk: writes are refused, reads go on, and it heals by itself when there is space again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.overload.small_disk import Disk, MountedDisk, PlantedDisk, may_mount
from tests.integration.raw import (
    RawClient,
    create_topic,
    end_offset,
    make_batch,
    produce_request,
    produced,
    read_log,
    wait_until,
)

from penstock.core.error_codes import ErrorCode as E
from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey

TOPIC = "orders"
PARTITIONS = 3


@pytest.fixture(params=[MountedDisk, PlantedDisk])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    mount = tmp_path / "disk"
    mount.mkdir()
    if request.param is MountedDisk and not may_mount(mount):
        pytest.skip("mounting a file system needs root; the same runs on a stand-in")
    made: Disk = request.param(mount)
    yield made
    made.remove()


@pytest.fixture
def process(disk: Disk) -> Iterator[BrokerProcess]:
    broker_process = BrokerProcess(disk.directory / "data", entry=disk.entry)
    broker_process.start()
    yield broker_process
    disk.free()
    broker_process.stop()


class Writer:
    """Numbers into a partition; knows which of them were acknowledged, and where."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._next = 0
        self.acknowledged: dict[int, list[bytes | None]] = {n: [] for n in range(PARTITIONS)}

    def write(self, partition: int) -> E:
        value = b"%d:" % self._next + bytes(50_000)
        self._next += 1
        answer = produced(self._client, TOPIC, make_batch([value]), partition=partition)
        if not answer.error_code:
            assert answer.base_offset == len(self.acknowledged[partition])
            self.acknowledged[partition].append(value)
        return E(answer.error_code)

    def write_round(self) -> list[E]:
        return [self.write(partition) for partition in range(PARTITIONS)]


def test_a_full_disk_refuses_writes_and_heals(disk: Disk, process: BrokerProcess) -> None:
    with RawClient(process.port) as client:
        assert create_topic(client, TOPIC, PARTITIONS).error_code == 0
        writer = Writer(client)
        for _ in range(3):
            assert writer.write_round() == [E.NONE] * PARTITIONS
        for _ in range(3):  # more than once: nothing may be left of the last time
            disk.fill()
            wait_until(lambda: E.NONE not in writer.write_round(), "the disk is full")
            refusals = {code for _ in range(5) for code in writer.write_round()}
            assert refusals == {E.KAFKA_STORAGE_ERROR}
            for partition in range(PARTITIONS):
                assert read_log(process.port, TOPIC, partition) == writer.acknowledged[partition]
            disk.free()
            wait_until(lambda: writer.write_round() == [E.NONE] * PARTITIONS, "there is space again")
        for partition in range(PARTITIONS):
            assert read_log(process.port, TOPIC, partition) == writer.acknowledged[partition]


def pipelined(port: int, count: int) -> list[E]:
    """What became of small batches sent at once; those whose connection was cut are left out: their fate is open."""
    requests = [produce_request(TOPIC, [(0, make_batch([b"%d" % i + bytes(3000)]))]) for i in range(count)]
    codes: list[E] = []
    with RawClient(port) as client:
        client.send_bytes(b"".join(client.frame(ApiKey.PRODUCE, 9, request) for request in requests))
        try:
            for _ in requests:
                codes.append(E(client.receive().responses[0].partition_responses[0].error_code))  # noqa: PERF401
        except ConnectionError:
            pass
    return codes


def test_pipelined_batches_are_never_acknowledged_by_a_full_disk(disk: Disk, process: BrokerProcess) -> None:
    """Batches that are written together are refused together; their log is back when there is space."""
    with RawClient(process.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        assert pipelined(process.port, 20) == [E.NONE] * 20
        disk.fill()
        wait_until(lambda: E.NONE not in pipelined(process.port, 20), "the disk is full")
        stored = end_offset(client, TOPIC)
        for _ in range(3):
            assert set(pipelined(process.port, 20)) <= {E.KAFKA_STORAGE_ERROR}
        assert end_offset(client, TOPIC) == len(read_log(process.port, TOPIC)) == stored
        disk.free()
        wait_until(lambda: pipelined(process.port, 1) == [E.NONE], "there is space again")
        before = end_offset(client, TOPIC)
        assert pipelined(process.port, 20) == [E.NONE] * 20
        assert len(read_log(process.port, TOPIC)) == before + 20


def test_what_was_acknowledged_survives_a_kill_on_a_full_disk(disk: Disk, process: BrokerProcess) -> None:
    with RawClient(process.port) as client:
        assert create_topic(client, TOPIC, PARTITIONS).error_code == 0
        writer = Writer(client)
        writer.write_round()
        disk.fill()
        wait_until(lambda: E.NONE not in writer.write_round(), "the disk is full")
    process.kill()
    disk.free()
    process.start()
    for partition in range(PARTITIONS):
        assert read_log(process.port, TOPIC, partition) == writer.acknowledged[partition]


def test_topics_cannot_be_created_on_a_full_disk_but_afterwards(disk: Disk, process: BrokerProcess) -> None:
    with RawClient(process.port) as client:
        assert create_topic(client, TOPIC, PARTITIONS).error_code == 0
        disk.fill()
        refused = create_topic(client, "late", 50)
        disk.free()
        # Refused, or kept by the metadata's own reserve; in the end it is there, once, and takes writes.
        if refused.error_code:
            wait_until(lambda: create_topic(client, "late", 50).error_code in (0, 36), "it can be created")
        wait_until(lambda: produced(client, "late", make_batch([b"x"])).error_code == 0, "it takes writes")
        assert end_offset(client, "late") == 1
        assert end_offset(client, TOPIC) == 0
