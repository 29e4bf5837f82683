"""Topics for the runs, and one-message Produce requests by hand.

A new topic counts as there when its leader acknowledges a message, not when CreateTopics answers: Kafka's
answer may come before the leader has it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import crc32c
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tools.peers.process import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN_TIMEOUT_S = 120.0
POLL_S = 0.002


def create_topic(
    bootstrap: str, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create the topic and wait until its last partition takes messages."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=ADMIN_TIMEOUT_S)[name].result(ADMIN_TIMEOUT_S)
    wait_acknowledged(int(bootstrap.rpartition(":")[2]), name, partitions - 1)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete the topic; one that is gone already is fine."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise


def wait_acknowledged(port: int, topic: str, partition: int = 0, timeout_s: float = ADMIN_TIMEOUT_S) -> float:
    """Try until a message is acknowledged; the moment (monotonic) at which it was."""
    deadline = time.monotonic() + timeout_s
    request = produce_request(topic, partition)
    while not _acknowledges(port, request, len(topic)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing acknowledged on {topic}-{partition} in {timeout_s:.0f} s")
        time.sleep(POLL_S)
    return time.monotonic()


def produce_request(topic: str, partition: int, acks: int = 1) -> bytes:
    """A Produce v3 request with one record of three bytes."""
    now_ms = int(time.time() * 1000)
    record = b"\0\0\0\x01\x06abc\0"  # attributes, deltas, null key, value, no headers
    checked = (
        struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + bytes([len(record) * 2]) + record
    )
    batch = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked
    name = topic.encode()
    body = struct.pack(">hhii", -1, acks, 30000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    header = struct.pack(">hhih", 0, 3, 1, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _acknowledges(port: int, request: bytes, name_bytes: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=30) as connection:
            return asked(connection, request, name_bytes) == 0
    except OSError:
        return False


def asked(connection: socket.socket, request: bytes, name_bytes: int) -> int | None:
    """The error code that the request is answered with; None where the broker closes instead."""
    # Answer v3: size, correlation id, topic count, name, partition count, index; the error, offset, time; throttle.
    error_at = 4 + 4 + 4 + 2 + name_bytes + 4 + 4
    connection.sendall(request)
    answer = b""
    while len(answer) < error_at + 2 + 8 + 8 + 4:
        part = connection.recv(4096)
        if not part:
            return None
        answer += part
    return int(struct.unpack_from(">h", answer, error_at)[0])
