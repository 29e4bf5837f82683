"""A read that fails while a replica is given its role: it is tried again, and nothing is half done until then."""

import pytest
from tests.sim.cluster_retiring import RETIRED, RetiringStory

from penstock.core.errors import StorageError
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.testing.sim_loop import SimLoop


def test_a_replica_that_fails_while_it_begins_to_lead_leads_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimLoop(1) as loop:
        story = RetiringStory(loop, synced=False)
        story.begin()
        story.let_pass(1)
        leader = story.leader(RETIRED)
        assert leader is not None
        honest, failed = Partition.lead, set[tuple[int, int]]()

        def lead(partition: Partition, epoch: int, leading: Leading | None) -> None:
            honest(partition, epoch, leading)
            if (partition.index, epoch) not in failed:
                failed.add((partition.index, epoch))
                raise StorageError("Input/output error")

        monkeypatch.setattr(Partition, "lead", lead)
        leader.kill()
        story.let_pass(1)
        leader.start()
        story.check_progress()
        assert failed
