"""What the cluster would do for itself, as pure functions: replace brokers that are lost or leave, add the
replicas that are missing, fill new brokers.

Each returns where replicas should be; `moves.begin` takes it from there. A replica that is replaced gives its place in
the row to the new one, so whoever takes over a preferred leader's copy is the preferred leader, and leaders stay as
evenly spread as they were.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.config.topic_settings import is_partition_number
from penstock.controller.moves import is_moving
from penstock.controller.placement import BrokerLocations, best
from penstock.coordination.metadata import PartitionKey
from penstock.coordination.nodes import PartitionState

States = Mapping[PartitionKey, PartitionState]
Targets = dict[PartitionKey, tuple[int, ...]]

# Settings of topics: how many replicas partitions shall have, and those of them that it does not mean.
REPLICAS_TO = "penstock.replicas.to"
REPLICAS_SETTLED = "penstock.replicas.settled"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who may be given replicas, and where they stand."""

    takers: Collection[int]
    places: BrokerLocations


def loads_of(states: States) -> Counter[int]:
    """How many replicas each broker has, once nothing moves any more."""
    return Counter(broker for state in states.values() for broker in state.target)


def mass_loss(gone: Collection[int], known: Collection[int], percent_max: int) -> bool:
    """Whether so many are gone that rebuilding their replicas would bury those that are left."""
    return len(gone) > max(1, len(known) * percent_max // 100)


def vacate(states: States, leaving: Collection[int], fleet: Fleet, limit: int) -> tuple[Targets, int]:
    """Replicas of brokers that are lost or leave, given to others: so many partitions at once, and how many are left.

    A replica that nobody can take (every other broker has one already) stays where it is, and is not counted. A
    partition that has no leader has nothing to copy from.
    """
    targets: Targets = {}
    left = 0
    loads = loads_of(states)
    moving = sum(is_moving(state) for state in states.values())
    for key, state in states.items():
        if state.leader < 0 or not any(broker in leaving for broker in state.target):
            continue
        target = _without(state.target, leaving, fleet, loads)
        if target == state.target:
            continue
        if moving >= limit and not is_moving(state):
            left += 1
            continue
        moving += not is_moving(state)
        loads.subtract(state.target)
        loads.update(target)
        targets[key] = target
    return targets, left


def _without(
    target: tuple[int, ...], leaving: Collection[int], fleet: Fleet, loads: Counter[int]
) -> tuple[int, ...]:
    after = list(target)
    for at, broker in enumerate(target):
        if broker in leaving:
            staying = [other for other in after if other != broker]
            chosen = best(
                staying, [each for each in fleet.takers if each not in leaving], fleet.places, loads
            )
            if chosen is not None:
                after[at] = chosen
    return tuple(after)


def stranded(states: States, leaving: Collection[int], fleet: Fleet) -> int:
    """How many partitions keep a replica on a broker that is lost or leaves, since nobody else can take it."""
    loads: Counter[int] = Counter()
    return sum(
        any(broker in leaving for broker in _without(state.target, leaving, fleet, loads))
        for state in states.values()
        if state.leader >= 0 and any(broker in leaving for broker in state.target)
    )


def complete(states: States, wanted: Mapping[PartitionKey, int], fleet: Fleet, limit: int) -> Targets:
    """More replicas for partitions that have fewer than they should, as far as there are brokers; so many at once."""
    targets: Targets = {}
    loads = loads_of(states)
    room = limit - sum(is_moving(state) for state in states.values())
    for key, count in wanted.items():
        state = states[key]
        if len(targets) >= room or state.leader < 0 or is_moving(state):
            continue
        target = list(state.target)
        while len(target) < count and (chosen := best(target, fleet.takers, fleet.places, loads)) is not None:
            target.append(chosen)
            loads[chosen] += 1
        if len(target) > len(state.target):
            targets[key] = tuple(target)
    return targets


def without_wish(configs: Mapping[str, str]) -> dict[str, str]:
    """A topic's settings when its replicas are as they should be."""
    return {name: value for name, value in configs.items() if name not in (REPLICAS_TO, REPLICAS_SETTLED)}


def settled_in(configs: Mapping[str, str]) -> set[int]:
    """Partitions that a wish does not mean: somebody has said where their replicas shall be.

    What else stands there is passed over: clients may write it, as they like.
    """
    numbers = (number.strip() for number in configs.get(REPLICAS_SETTLED, "").split(","))
    return {int(number) for number in numbers if is_partition_number(number)}


def with_settled(configs: Mapping[str, str], numbers: Collection[int]) -> Mapping[str, str]:
    if REPLICAS_TO not in configs:
        return configs
    return {**configs, REPLICAS_SETTLED: ",".join(map(str, sorted(settled_in(configs) | {*numbers})))}


def fill(states: States, empty: Collection[int], fleet: Fleet) -> Targets:
    """Their share of all replicas, and of preferred leaders, for brokers that have none."""
    targets: Targets = {key: state.target for key, state in states.items() if state.leader >= 0}
    changed: dict[PartitionKey, None] = {}
    loads = Counter(broker_info for target in targets.values() for broker_info in target)
    leads = Counter(target[0] for target in targets.values())
    share = sum(loads.values()) // max(len(fleet.takers), 1)
    lead_share = len(targets) // max(len(fleet.takers), 1)
    for newcomer in sorted(empty):
        # Those with the most give first; whoever cannot (all of its partitions are there already) is passed over.
        donors = set(fleet.takers) - set(empty)
        while loads[newcomer] < share and donors:
            donor = max(donors, key=lambda broker: (loads[broker], -broker))
            key = (
                _gift(targets, donor, newcomer, fleet, leads[newcomer] < lead_share)
                if loads[donor] > share
                else None
            )
            if key is None:
                donors.discard(donor)
                continue
            target = targets[key]
            leads.subtract(target[:1])
            targets[key] = target = tuple(newcomer if broker == donor else broker for broker in target)
            leads.update(target[:1])
            loads.subtract([donor])
            loads.update([newcomer])
            changed[key] = None
    return {key: targets[key] for key in changed}


def _gift(targets: Targets, donor: int, newcomer: int, fleet: Fleet, wants_lead: bool) -> PartitionKey | None:
    """A partition whose replica on the donor may as well be on the newcomer; led or not, as is wanted."""
    second = None
    for key, target in targets.items():
        if donor not in target or newcomer in target:
            continue
        staying = [broker for broker in target if broker != donor]
        if best(staying, [donor, newcomer], fleet.places, {newcomer: -1}) != newcomer:
            continue  # it would be less well spread over racks, or share a machine
        if (target[0] == donor) == wants_lead:
            return key
        second = second or key
    return second
