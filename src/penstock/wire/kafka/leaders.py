"""Who leads a partition, said along with an error (KIP-951): a client goes there at once, without asking for Metadata.

    of a partition  current_leader   leader id, leader epoch
    of the answer   node_endpoints   [node id, host, port, rack] of the leaders that were named

Both are tagged fields: Produce has them since version 10, Fetch since version 16 (the leader alone since 12).
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from penstock.wire.kafka.primitives import write_uvarint

_INT32 = Struct(">i")
_INT32_INT32 = Struct(">ii")


class NodeEndpoint(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class Leader(NamedTuple):
    """`id` is -1 while nobody leads."""

    id: int
    epoch: int


# Who leads a partition; the topic as on the wire, and whether that is an id.
LeaderOf = Callable[[bytes, int, bool], Leader | None]
# Where the client finds a broker; None for one that is not alive, or not to be reached the way the client came.
EndpointOf = Callable[[int], NodeEndpoint | None]
Named = dict[int, None]  # the leaders that were named, in order


def append_leader(out: bytearray, tag: int, leader: Leader, named: Named) -> None:
    """The tagged field of one partition, number and size included; notes who was named."""
    out += bytes((tag, _INT32_INT32.size + 1)) + _INT32_INT32.pack(leader.id, leader.epoch) + b"\0"
    named[leader.id] = None


def append_endpoints(out: bytearray, named: Named, endpoint_of: EndpointOf | None) -> None:
    """The tagged fields of the whole answer: none, or tag 0 with the endpoints."""
    nodes = [node for broker in named if endpoint_of is not None and (node := endpoint_of(broker))]
    if not nodes:
        out.append(0)
        return
    field = bytearray()
    write_uvarint(field, len(nodes) + 1)
    for node in nodes:
        field += _INT32.pack(node.id)
        _append_text(field, node.host)
        field += _INT32.pack(node.port)
        if node.rack is None:
            field.append(0)
        else:
            _append_text(field, node.rack)
        field.append(0)
    out += b"\x01\x00"
    write_uvarint(out, len(field))
    out += field


def _append_text(out: bytearray, text: str) -> None:
    data = text.encode()
    write_uvarint(out, len(data) + 1)
    out += data
