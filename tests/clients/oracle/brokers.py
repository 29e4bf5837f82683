"""The brokers that are compared, started side by side, each with its defaults but for what groups need here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.clients.oracle.sides import DATA_DIR, Side
from tools.peers import ApacheKafka, BrokerProcess, PenstockPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PEERS: dict[str, Callable[[Mapping[str, object]], BrokerProcess]] = {
    "kafka": ApacheKafka,
    "penstock": PenstockPeer,
}
# Thousands of groups are formed, each of one member. And one node has no room for three replicas.
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@contextmanager
def compared(left: str = "kafka", right: str = "penstock") -> Iterator[tuple[Side, Side]]:
    with PEERS[left](SETTINGS) as first, PEERS[right](SETTINGS) as second:
        sides = _side(f"{left} (left)", first), _side(f"{right} (right)", second)
        try:
            yield sides
        finally:
            for side in sides:
                side.close()


def _side(name: str, broker: BrokerProcess) -> Side:
    own = {str(broker.port): "<port>", str(broker.data_dir): DATA_DIR}
    if isinstance(broker, ApacheKafka):
        own[str(broker.controller_port)] = "<controller port>"
    if isinstance(broker, PenstockPeer):
        own[str(broker.console_port)] = "<console port>"
    return Side(name, broker.port, own)
