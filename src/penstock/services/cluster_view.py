"""The cluster as clients are told of it, in whichever answer: which brokers live, who leads."""

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.services.services import Node, Services

NOBODY = -1


def live_brokers(services: Services) -> list[Node]:
    brokers = [Node(one.id, one.host, one.port, one.rack) for one in services.image.brokers.values()]
    if services.node.id not in services.image.brokers:
        # Just started, and not registered yet: clients that got through must find their way all the same.
        brokers.append(services.node)
    return sorted(brokers, key=lambda node: node.id)


def live_ids(services: Services) -> frozenset[int]:
    return frozenset({*services.image.brokers, services.node.id})


def controller_id(services: Services) -> int:
    """The broker that requests for the controller go to; any may pass them on."""
    controller = services.image.controller
    return controller if controller in services.image.brokers else NOBODY


def leader_node(services: Services, state: PartitionState) -> Node | None:
    """Where the partition's leader is to be found, if it is there at all."""
    if state.leader == services.node.id:
        return services.node
    found = services.image.brokers.get(state.leader)
    return None if found is None else Node(found.id, found.host, found.port, found.rack)


def leadership(state: PartitionState, live: frozenset[int]) -> tuple[int, ErrorCode]:
    """The leader clients may turn to, and the code that says whether there is one."""
    if state.leader in live:
        return state.leader, ErrorCode.NONE
    return NOBODY, ErrorCode.LEADER_NOT_AVAILABLE


def offline_replicas(state: PartitionState, live: frozenset[int]) -> list[int]:
    return [broker for broker in state.replicas if broker not in live]
