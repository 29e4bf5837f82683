"""A relay's route, as both of its messages begin with it.

    int8 kind, uuid source topic, int32 source partition, uuid target topic, int32 target partition

Topics by id: another one of the same name must not get what was meant for this one.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import Buffer, checked_uuid

_ROUTE = Layout(">b16si16si")
ROUTE_BYTES = _ROUTE.size


class WireRoute(NamedTuple):
    """As `replication.route_registry` has it; what kinds there are, `records.relay` says."""

    kind: int
    source_topic_id: bytes
    source_partition: int
    target_topic_id: bytes
    target_partition: int


def read_route(buffer: Buffer, position: int) -> tuple[WireRoute, int]:
    return WireRoute(*_ROUTE.unpack_from(buffer, position)), position + ROUTE_BYTES


def write_route(out: bytearray, route: WireRoute) -> None:
    checked_uuid(route.source_topic_id)
    checked_uuid(route.target_topic_id)
    out += _ROUTE.pack(*route)
