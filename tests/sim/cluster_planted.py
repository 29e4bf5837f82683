"""Protocol bugs to be planted into a simulated cluster, each of which has been made in some real system."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.sim.cluster_clients import Violation

from penstock.controller import controller, election, log_end_election
from penstock.coordination.nodes import PartitionState
from penstock.replication.fetcher import Fetcher
from penstock.replication.leading import Leading, Proposal
from penstock.replication.partition import Partition
from penstock.replication.table import Topic
from penstock.services.hosting.roles import Roles
from penstock.storage.replicated import truncate
from penstock.testing.sim_failures import SimulationError

Plant = Callable[[pytest.MonkeyPatch], None]


def truncate_by_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower cuts its log back to what it knows to be committed; it has acknowledged more."""
    honest = Roles._follow

    def hasty(roles: Roles, topic: Topic, partition: Partition, state: PartitionState) -> None:
        if partition.log.end_offset > partition.high_watermark and not partition.lease.is_syncing:
            truncate(partition.log, partition.high_watermark)
        honest(roles, topic, partition, state)

    monkeypatch.setattr(Roles, "_follow", hasty)


def acknowledge_before_growth_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that the controller may have let in already is not waited for."""
    monkeypatch.setattr(Leading, "waited_for", lambda leading: leading.state.isr)


def elect_outside_the_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first live replica leads, whatever it has."""

    def careless(
        state: PartitionState, isr: tuple[int, ...], eligible: tuple[int, ...], world: election.World
    ) -> int:
        if state.leader in isr:
            return state.leader
        return next(
            (replica for replica in reversed(state.replicas) if replica in world.live), election.NOBODY
        )

    monkeypatch.setattr(election, "_elect", careless)


def leader_writes_the_isr_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader goes by its own proposal without waiting for the controller."""
    honest = Leading.propose

    def selfish(leading: Leading, members: list[int], own_broker_epoch: int) -> Proposal:
        proposal = honest(leading, members, own_broker_epoch)
        leading.state = replace(leading.state, isr=tuple(members), eligible=())
        leading.min_isr = min(leading.min_isr, len(members))
        return proposal

    monkeypatch.setattr(Leading, "propose", selfish)


def unclean_replica_stays_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lost the end of its log in a crash may lead as if nothing had been."""
    honest = controller.world_of
    for module in (controller, log_end_election):
        monkeypatch.setattr(module, "world_of", lambda image: replace(honest(image), unsettled=()))


def stands_back_with_an_unsynced_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who led says as a follower that it has what it wrote, although that is not durable yet."""

    async def nothing(fetcher: Fetcher) -> None:
        pass

    monkeypatch.setattr(Fetcher, "_make_durable", nothing)


def goes_wrong(tell: Callable[[int], object], seed: int) -> bool:
    """Whether a checker finds something in the story of that seed."""
    try:
        tell(seed)
    except Violation as found:
        return _told(seed, found)
    except SimulationError as error:
        return isinstance(error.__cause__, Violation) and _told(seed, error.__cause__)
    return False


def _told(seed: int, found: Violation) -> bool:
    print(f"found by seed {seed}: {str(found).splitlines()[0]}")  # `make soak PART=planted` shows it
    return True


PLANTED: list[Plant] = [
    truncate_by_high_watermark,
    acknowledge_before_growth_commits,
    elect_outside_the_isr,
    leader_writes_the_isr_itself,
    unclean_replica_stays_eligible,
]
