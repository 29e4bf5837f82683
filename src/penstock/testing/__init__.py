"""For tests: a real broker in one line (`broker`), and the simulation the project itself is tested on.

    from penstock.testing import broker

    with broker() as penstock:
        producer = Producer({"bootstrap.servers": penstock.bootstrap})

`cluster` gives several brokers on a ZooKeeper of their own (it needs Java and the extras cluster and spark).

With pytest, fixtures give the same: `penstock_broker`, one for the whole session, and `penstock_topic`, one for each
test; docs/testing.md has them all.
"""

from penstock.testing.cluster import ClusterProcesses, cluster
from penstock.testing.process import BrokerProcess, broker

__all__ = ["BrokerProcess", "ClusterProcesses", "broker", "cluster"]
