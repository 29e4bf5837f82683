"""A broker in the tree: its registration, which ends with its session, and the life of its latest process.

`nodes` says where both live, and how such values are written in general.
"""

from dataclasses import dataclass

from penstock.coordination.node_format import dump, fields_of, naming
from penstock.coordination.tree import Node
from penstock.core.endpoints import Address, Endpoint, find_endpoint


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    id: int
    # The data directory's identity: the same broker come back, or another with its number?
    identity: str
    # Where other brokers reach it, and brokers of an older version send clients.
    host: str
    port: int
    rack: str | None = None
    epoch: int = -1
    # Which process of this broker it is: a new session of the same process has lost nothing.
    incarnation: str = ""
    # The machine it runs on, where several brokers share one.
    machine: str | None = None
    # It is about to leave: leaders go elsewhere, and it joins no set of in-sync replicas.
    stopping: bool = False
    # Where clients of each listener reach it. An older version has none of that: `host` and `port` are for all.
    endpoints: tuple[Endpoint, ...] = ()
    # How many partitions its descriptors can serve; None: an older version, which does not say.
    partitions_max: int | None = None
    # Of `transaction.version`, which it can serve; 0: none, or an older version, which does not say.
    transaction_version: int = 0

    def address_for(self, listener: str) -> Address | None:
        """Where clients of a listener reach it; None: it has no such listener."""
        if not self.endpoints:
            return Address(self.host, self.port)
        found = find_endpoint(self.endpoints, listener)
        return None if found is None else Address(found.host, found.port)


@dataclass(frozen=True, slots=True)
class Life:
    incarnation: str
    # False: it began without a clean shutdown, and the controller has not yet taken it out of those that may lead.
    settled: bool
    version: int = 0


def encode_broker(broker: BrokerRegistration) -> bytes:
    return dump(
        {
            "identity": broker.identity,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "incarnation": broker.incarnation,
            "machine": broker.machine,
            "stopping": broker.stopping,
            "endpoints": [endpoint._asdict() for endpoint in broker.endpoints],
            "partitions_max": broker.partitions_max,
            "transaction_version": broker.transaction_version,
        }
    )


def decode_broker(path: str, node: Node) -> BrokerRegistration:
    with naming(path):
        fields = fields_of(node.data)
        return BrokerRegistration(
            id=int(path.rpartition("/")[2]),
            identity=str(fields["identity"]),
            host=str(fields["host"]),
            port=int(fields["port"]),
            rack=fields["rack"],
            epoch=node.created,
            incarnation=str(fields.get("incarnation", "")),
            machine=fields.get("machine"),
            stopping=bool(fields.get("stopping", False)),
            endpoints=tuple(
                Endpoint(
                    str(endpoint["listener"]),
                    str(endpoint["protocol"]),
                    str(endpoint["host"]),
                    int(endpoint["port"]),
                )
                for endpoint in fields.get("endpoints", ())
            ),
            partitions_max=fields.get("partitions_max"),
            transaction_version=int(fields.get("transaction_version", 0)),
        )


def encode_life(life: Life) -> bytes:
    return dump({"incarnation": life.incarnation, "settled": life.settled})


def decode_life(path: str, node: Node) -> Life:
    with naming(path):
        fields = fields_of(node.data)
        return Life(str(fields["incarnation"]), bool(fields["settled"]), node.version)
