"""Where replicas go: pure functions from brokers to assignments.

What is even is what Kafka calls so. A partition's replicas stand in as many racks as there are, leaders go round all
brokers, and where all racks have as many brokers, all brokers get as many replicas. Brokers that say which machine they
run on never share a partition with another one of that machine: it would go down with it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


@dataclass(frozen=True, slots=True)
class BrokerLocation:
    """Where a broker stands; unknown racks are one rack, unknown machines are all different."""

    rack: str | None = None
    machine: str | None = None


BrokerLocations = Mapping[int, BrokerLocation]
_NOWHERE = BrokerLocation()


def place(
    partitions: int,
    replication_factor: int,
    brokers: Sequence[int],
    *,
    start: int,
    places: BrokerLocations | None = None,
) -> list[tuple[int, ...]]:
    """Replicas for each partition, its leader first; `start` says which broker the first leader is.

    Leaders go round the brokers, and with every round followers move one broker further away from their leader, so
    that a broker's loss spreads its load over all others.
    """
    places = places or {}
    most = machine_count(brokers, places)
    if replication_factor > most:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {most} broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        )
    ring = alternating(brokers, places)
    count = len(ring)
    placed = []
    for partition in range(start, start + partitions):
        others = max(count - 1, 1)
        shift = partition // count
        replicas = [ring[partition % count]]
        candidates = [ring[(partition + 1 + (shift + step) % others) % count] for step in range(count - 1)]
        while len(replicas) < replication_factor:
            rank = {candidate: number for number, candidate in enumerate(candidates)}
            chosen = best(replicas, candidates, places, rank)
            assert chosen is not None  # each takes one machine, and there are enough
            replicas.append(chosen)
        placed.append(tuple(replicas))
    return placed


def best(
    replicas: Iterable[int], candidates: Iterable[int], places: BrokerLocations, rank: Mapping[int, int]
) -> int | None:
    """Who should join these replicas: on another machine, in the rack that has fewest of them, then by `rank`."""
    taken = list(replicas)
    machines = {_machine(broker_info, places) for broker_info in taken}
    racks = Counter(places.get(broker, _NOWHERE).rack for broker in taken)
    free = [
        candidate
        for candidate in candidates
        if candidate not in taken and _machine(candidate, places) not in machines
    ]
    return min(
        free,
        key=lambda broker: (racks[places.get(broker, _NOWHERE).rack], rank.get(broker, 0), broker),
        default=None,
    )


def alternating(brokers: Iterable[int], places: BrokerLocations) -> list[int]:
    """All brokers, each in another rack than the one before it as far as racks last, and so for machines."""
    racks: dict[str | None, dict[object, list[int]]] = {}
    for broker in brokers:
        machines = racks.setdefault(places.get(broker, _NOWHERE).rack, {})
        machines.setdefault(_machine(broker, places), []).append(broker)
    ordered = sorted(racks.items(), key=lambda item: (item[0] is not None, item[0] or ""))
    return _in_turn([_in_turn(list(machines.values())) for _, machines in ordered])


def machine_count(brokers: Iterable[int], places: BrokerLocations) -> int:
    """How many replicas a partition can have at most."""
    return len({_machine(broker, places) for broker in brokers})


def _in_turn(rows: Sequence[Sequence[int]]) -> list[int]:
    return [broker for column in zip_longest(*rows) for broker in column if broker is not None]


def _machine(broker: int, places: BrokerLocations) -> object:
    machine = places.get(broker, _NOWHERE).machine
    return broker if machine is None else machine


def check_replicas(replicas: Sequence[int], brokers: Collection[int], replication_factor: int | None) -> None:
    """A partition's replicas as given by hand; `replication_factor` is that of the partitions before it."""
    if not replicas:
        raise _refused("includes an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in brokers:
            raise _refused(f"includes broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise _refused(f"includes the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )


def _refused(problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}")
