"""The brokers that are compared, started side by side, each with its defaults."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.clients.oracle.sides import Side
from tools.peers import ApacheKafka, BrokerProcess, PenstockPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS: dict[str, type[BrokerProcess]] = {"kafka": ApacheKafka, "penstock": PenstockPeer}


@contextmanager
def compared(left: str = "kafka", right: str = "penstock") -> Iterator[tuple[Side, Side]]:
    with PEERS[left]() as first, PEERS[right]() as second:
        sides = _side(f"{left} (left)", first), _side(f"{right} (right)", second)
        try:
            yield sides
        finally:
            for side in sides:
                side.drop()


def _side(name: str, broker: BrokerProcess) -> Side:
    own = {str(broker.port): "<port>", str(broker.data_dir): "<data dir>"}
    if isinstance(broker, ApacheKafka):
        own[str(broker.controller_port)] = "<controller port>"
    if isinstance(broker, PenstockPeer):
        own[str(broker.console_port)] = "<console port>"
    return Side(name, broker.port, own)
