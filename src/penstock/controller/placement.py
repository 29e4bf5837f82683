"""Where replicas go: pure functions from brokers to assignments."""

from collections.abc import Collection, Sequence

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


def place(
    partitions: int, replication_factor: int, brokers: Sequence[int], *, start: int
) -> list[tuple[int, ...]]:
    """Replicas for each partition, its leader first; `start` says which broker the first leader is.

    Leaders go round the brokers, and with every round followers move one broker further away from their leader, so
    that a broker's loss spreads its load over all others.
    """
    count = len(brokers)
    if replication_factor > count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {count} broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        )
    placed = []
    for partition in range(start, start + partitions):
        others = max(count - 1, 1)
        shift = partition // count
        followers = (1 + (shift + step) % others for step in range(replication_factor - 1))
        placed.append(tuple(brokers[(partition + step) % count] for step in (0, *followers)))
    return placed


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
