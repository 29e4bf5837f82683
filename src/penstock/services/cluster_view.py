"""The cluster as clients are told of it, in whichever answer: which brokers live and where, who leads.

Where a broker is depends on the listener that was asked: each broker says for each of its listeners how it is reached.
One without that listener is alive, but not to be reached by who came in there.
"""

from dataclasses import dataclass

from penstock.coordination.nodes import PartitionState
from penstock.core.endpoints import find_endpoint
from penstock.core.error_codes import ErrorCode
from penstock.services.services import Services
from penstock.wire.kafka.leaders import NodeEndpoint

NOBODY = -1


def live_brokers(services: Services, listener: str) -> list[NodeEndpoint]:
    """Those that can be reached from there."""
    image, node = services.image, services.node
    found = [broker_node(services, broker, listener) for broker in sorted({*image.brokers, node.id})]
    return [endpoint for endpoint in found if endpoint is not None]


def broker_node(services: Services, broker: int, listener: str) -> NodeEndpoint | None:
    registered = services.image.brokers.get(broker)
    if registered is not None:
        address = registered.address_for(listener)
        return None if address is None else NodeEndpoint(broker, *address, registered.rack)
    node = services.node
    if broker != node.id:
        return None
    # Just started, and not registered yet: clients that got through must find their way all the same.
    own = find_endpoint(node.endpoints, listener)
    return None if own is None else NodeEndpoint(node.id, own.host, own.port, node.rack)


def live_ids(services: Services) -> frozenset[int]:
    return frozenset({*services.image.brokers, services.node.id})


def controller_id(services: Services) -> int:
    """The broker that requests for the controller go to; any may pass them on."""
    controller = services.image.controller
    return controller if controller in services.image.brokers else NOBODY


def leader_node(services: Services, state: PartitionState, listener: str) -> NodeEndpoint | None:
    """Where the partition's leader is to be found, if it is there at all."""
    return broker_node(services, state.leader, listener)


@dataclass(frozen=True, slots=True)
class Reach:
    """Which brokers live, and which of them clients of a listener can reach."""

    live: frozenset[int]
    reached: frozenset[int]

    @classmethod
    def of(cls, services: Services, listener: str) -> "Reach":
        return cls(live_ids(services), frozenset(broker.id for broker in live_brokers(services, listener)))

    def leadership(self, state: PartitionState) -> tuple[int, ErrorCode]:
        """The leader clients may turn to, and the code that says whether there is one."""
        if state.leader in self.reached:
            return state.leader, ErrorCode.NONE
        lives = state.leader in self.live
        return NOBODY, ErrorCode.LISTENER_NOT_FOUND if lives else ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, state: PartitionState) -> list[int]:
        return [broker for broker in state.replicas if broker not in self.reached]
