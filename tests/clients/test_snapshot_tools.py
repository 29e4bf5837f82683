"""Kafka's own kafka-dump-log reads our producer snapshots (`make clients`)."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tools.peers import PenstockPeer, apache_kafka

pytestmark = pytest.mark.clients
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"


def dumped(snapshot: Path) -> list[dict[str, int]]:
    """What the tool says of each producer, as far as it is a number."""
    done = apache_kafka.run_tool(DUMP_TOOL, "--files", str(snapshot))
    assert done.returncode == 0, done.stdout + done.stderr
    told = [re.findall(r"(\w+): (-?\d+)\b", line) for line in done.stdout.splitlines()]
    return [{name: int(number) for name, number in line} for line in told if line]


def test_a_snapshot_reads_as_kafkas_own() -> None:
    with PenstockPeer() as peer:
        producer = Producer({"bootstrap.servers": peer.bootstrap, "enable.idempotence": True, "log_level": 0})
        for _ in range(3):
            producer.produce("orders", b"one", partition=0, timestamp=1_700_000_000_000)
            assert producer.flush(60) == 0
        peer.stop()
        (snapshot,) = peer.data_dir.glob("topics/orders/Partition-0/*.snapshot")
        (found,) = dumped(snapshot)
    assert found.pop("producerId") >= 0
    assert found == {
        "producerEpoch": 0,
        "coordinatorEpoch": -1,
        "lastTimestamp": 1_700_000_000_000,
        "firstSequence": 2,
        "lastSequence": 2,
        "lastOffset": 2,
        "offsetDelta": 0,
        "timestamp": 1_700_000_000_000,
    }
