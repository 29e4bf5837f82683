"""The cluster's metadata, as the controller's decisions want to see it."""

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.controller.election import World
from penstock.controller.moves import grown, hand_over, is_moving
from penstock.controller.placement import BrokerLocation, BrokerLocations
from penstock.coordination import nodes
from penstock.coordination.image import ClusterImage
from penstock.coordination.metadata import PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.tree import Check

Rewrite = Callable[[ClusterImage], tuple[Mapping[PartitionKey, PartitionState], Sequence[Check]]]

DRAINING = "penstock.broker.draining"


def world_of(image: ClusterImage) -> World:
    live = sorted(image.brokers)
    return World(
        live=live,
        unsettled=[broker for broker, life in sorted(image.lives.items()) if not life.settled],
        stopping=[broker for broker in live if image.brokers[broker].stopping],
    )


def places_of(image: ClusterImage) -> BrokerLocations:
    return {broker.id: BrokerLocation(broker.rack, broker.machine) for broker in image.brokers.values()}


def draining_in(image: ClusterImage) -> list[int]:
    return sorted(
        broker
        for broker, configs in image.broker_configs.items()
        if configs.get(DRAINING, "").strip().lower() == "true"
    )


def states_of(image: ClusterImage) -> dict[PartitionKey, PartitionState]:
    return {
        (topic.id, number): state
        for topic in image.stored_topics()
        for number, state in enumerate(topic.partitions)
    }


def checks_of(image: ClusterImage, brokers: Collection[int]) -> list[Check]:
    """That none of these has begun anew."""
    return [
        Check(nodes.life_path(broker), image.lives[broker].version)
        for broker in sorted(brokers)
        if broker in image.lives
    ]


def moves_on(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
    """Moves whose new replicas have everything, a step on; none that stays may have begun anew when it is written."""
    world = world_of(image)
    changed: dict[PartitionKey, PartitionState] = {}
    for key, state in states_of(image).items():
        if is_moving(state):
            after = grown(hand_over(state, world), world)
            if after is not state:
                changed[key] = after
    return changed, checks_of(image, {broker for state in changed.values() for broker in state.target})
