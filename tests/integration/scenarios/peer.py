"""Which broker the scenarios run against: Penstock, or Apache Kafka with `PENSTOCK_PEER=kafka`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.peers import ApacheKafka, BrokerProcess, PenstockPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

PEER_VARIABLE = "PENSTOCK_PEER"
PEERS: dict[str, type[BrokerProcess]] = {"penstock": PenstockPeer, "kafka": ApacheKafka}


@contextmanager
def running_peer() -> Iterator[BrokerProcess]:
    """The chosen broker as a process of its own, ready to serve; gone afterwards."""
    with PEERS[os.environ.get(PEER_VARIABLE, "penstock")]() as peer:
        yield peer
