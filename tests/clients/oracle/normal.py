"""Answers as plain data, with what differs by nature replaced by a name for it.

A broker's own id, port, cluster id, topic and producer ids and clock are its own; what must agree is where
they appear. So a topic id becomes the topic's name, a producer id its number in the run, a member's id
the group it was given in, and a moment just passed becomes "<now>".
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from typing import TYPE_CHECKING, Any

from tests.clients.oracle.batches import BEFORE_LENGTH, HEAD, HEADER_BYTES, TAIL

from penstock.wire.kafka.primitives import ZERO_UUID, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.oracle.sides import Side

NEAR_MS = 600_000
CODEC = 0x07
DROPPED = frozenset({"throttle_time_ms"})
NODES = frozenset(
    {
        "node_id",
        "broker_id",
        "leader_id",
        "controller_id",
        "replica_id",
        "replica_nodes",
        "isr_nodes",
        "offline_replicas",
    }
)
MESSAGES = frozenset({"error_message", "batch_index_error_message"})
CLOCKS = frozenset({"log_append_time_ms", "timestamp", "last_fetch_timestamp", "last_caught_up_timestamp"})
MEMBERS = frozenset({"member_id", "leader"})
MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LONG_NUMBER = re.compile(r"-?\d{13,}")


def normalise(message: Any, side: Side) -> Any:
    if isinstance(message, Struct):
        return {
            name: _field(name, getattr(message, name), side)
            for name in message.__slots__
            if name not in DROPPED
        }
    if isinstance(message, list):
        return [normalise(item, side) for item in message]
    return message


def _field(name: str, value: Any, side: Side) -> Any:
    rule = RULES.get(name)
    if value is not None and rule is not None:
        return rule(value, side)
    return normalise(value, side)


def _node(value: Any, side: Side) -> Any:
    if isinstance(value, list):
        return [_node(item, side) for item in value]
    return "<node>" if value == side.node_id else value


def _topic_id(value: bytes, side: Side) -> str:
    if value == ZERO_UUID:
        return "<zero>"
    name = side.topic_names.get(bytes(value))
    return f"<id of {name}>" if name is not None else f"<unknown id {bytes(value).hex()}>"


def _producer(value: int, side: Side) -> Any:
    if value in side.producer_ids:
        return f"<producer {side.producer_ids.index(value)}>"
    return value


def _member(value: str, side: Side) -> str:
    if value in side.member_names:
        return f"<member of {side.member_names[value]}>"
    made = MEMBER_ID.fullmatch(value)
    return f"<new member, {made.group(1)}>" if made else value


def _clock(value: int, side: Side) -> Any:
    del side
    return "<now>" if abs(value - time.time() * 1000) < NEAR_MS else value


def _text(value: str, side: Side) -> str:
    text = LONG_NUMBER.sub("<number>", value)
    return re.sub(rf"\b(expected|Expected) {side.node_id}\b", r"\1 <node>", text)


def _config(value: Any, side: Side) -> Any:
    if isinstance(value, str):
        for text, name in side.own_texts.items():
            value = value.replace(text, name)
    return value


def _bytes(value: int, side: Side) -> Any:
    del side
    return "<bytes>" if value > 0 else value


def _session(value: int, side: Side) -> Any:
    del side
    return "<session>" if value else 0


def _port(value: int, side: Side) -> Any:
    return "<port>" if value == side.port else value


def _cluster(value: str, side: Side) -> Any:
    return "<cluster>" if value == side.cluster_id else value


def _constant(name: str) -> Callable[[Any, Side], str]:
    return lambda _value, _side: name


def batches(log: bytes, side: Side) -> list[dict[str, Any]]:
    """Whole batches only: a broker may cut the last one at the limit, and clients drop that part."""
    found = []
    position = 0
    while position + HEADER_BYTES <= len(log):
        base_offset, length, leader_epoch, magic, _crc = HEAD.unpack_from(log, position)
        end = position + BEFORE_LENGTH + length
        if end > len(log):
            break
        tail = TAIL.unpack_from(log, position + HEAD.size)
        attributes, last_delta, base_time, max_time, producer, epoch, sequence, count = tail
        payload = log[position + HEADER_BYTES : end]
        found.append(
            {
                "base_offset": base_offset,
                "leader_epoch": leader_epoch,
                "magic": magic,
                "attributes": attributes,
                "last_offset_delta": last_delta,
                "base_timestamp": _clock(base_time, side),
                "max_timestamp": _clock(max_time, side),
                "producer": _producer(producer, side),
                "producer_epoch": epoch,
                "base_sequence": sequence,
                "count": count,
                "payload": hashlib.sha1(payload).hexdigest()[:12],
            }
        )
        position = end
    return found


def _records(value: Any, side: Side) -> Any:
    try:
        return batches(bytes(value), side)
    except struct.error as failure:
        return f"<unreadable: {failure}>"


RULES: dict[str, Callable[[Any, Side], Any]] = {
    **dict.fromkeys(NODES, _node),
    **dict.fromkeys(MESSAGES, _text),
    **dict.fromkeys(CLOCKS, _clock),
    **dict.fromkeys(MEMBERS, _member),
    "topic_id": _topic_id,
    "producer_id": _producer,
    "port": _port,
    "cluster_id": _cluster,
    "session_id": _session,
    "value": _config,
    "log_dir": _constant("<log dir>"),
    "total_bytes": _bytes,
    "usable_bytes": _bytes,
    "documentation": _constant("<text>"),
    "finalized_features_epoch": _constant("<epoch>"),
    "records": _records,
    "resource_name": lambda value, side: "<node>" if value == str(side.node_id) else value,
}
