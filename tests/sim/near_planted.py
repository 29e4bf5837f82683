"""Bugs of followers that consumers read from, to be planted into the simulated cluster."""

import pytest
from tests.sim.cluster_planted import Plant

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.services.fetching.certainty import Certainty
from penstock.services.fetching.replica_selector import LEADER, RackAwareSelector
from penstock.services.hosting.roles import Roles
from penstock.storage.segment import Slice


def shows_all_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower gives records above the high watermark that it was told."""
    honest = Partition.read

    def read(partition: Partition, offset: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        if not partition.is_following:
            return honest(partition, offset, size_max, at_least_one=at_least_one)
        return partition.log.read(offset, size_max, partition.log.end(), at_least_one=at_least_one)

    monkeypatch.setattr(Partition, "read", read)


def takes_what_it_was_given_for_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower goes by the end of its own log, and not by what its leader says of others."""
    honest = Partition.told_committed
    monkeypatch.setattr(
        Partition, "told_committed", lambda partition, _: honest(partition, partition.log.end_offset)
    )


def serves_out_of_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are sent to any replica in their rack, and one that comes back shows its log before it compared it."""
    honest = Roles._follow

    def follow(roles: Roles, topic: Topic, partition: Partition, state: PartitionState) -> None:
        honest(roles, topic, partition, state)
        partition.limits.move(partition.log.end())

    def choose(selector: RackAwareSelector, partition: Partition, rack: bytes, offset: int) -> int:
        replicas = () if partition.leading is None else partition.leading.progress
        return next((replica for replica in replicas if selector._rack_of(replica) == rack), LEADER)

    monkeypatch.setattr(Roles, "_follow", follow)
    monkeypatch.setattr(RackAwareSelector, "choose", choose)


def says_at_once_that_there_is_no_such_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced and does not know it sends readers back whose places are in its successor's log."""
    monkeypatch.setattr(Certainty, "no_place", lambda *_: ErrorCode.OFFSET_OUT_OF_RANGE)


# Found by seeds 3, 4, 22 and 1.
PLANTED: list[Plant] = [
    shows_all_it_has,
    takes_what_it_was_given_for_committed,
    serves_out_of_sync,
    says_at_once_that_there_is_no_such_place,
]
