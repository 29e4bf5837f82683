"""What a retired partition has to move arrives, however small the requests are that its target takes from clients."""

import pytest
from tests.sim.cluster_story import Story
from tests.sim.test_relay_commits import INTO, RETIRED, SETTINGS, CommitStory

from penstock.records.builder import BatchBuilder
from penstock.replication.retirement import is_drained
from penstock.testing.sim_loop import SimLoop

BATCHES = 30
BATCH_BYTES = 5000


class BoundedStory(CommitStory):
    def __init__(self, loop: SimLoop, request_bytes_max: int) -> None:
        settings = {**SETTINGS, "socket.request.max.bytes": str(request_bytes_max)}
        Story.__init__(self, loop, settings, synced=False, brokers=4)

    @property
    def configs(self) -> dict[str, str]:
        return {"min.insync.replicas": "2", "retention.ms": "-1"}

    def produce_behind_a_stalled_way(self) -> None:
        source, target = self.leader(RETIRED), self.leader(INTO)
        assert source is not target
        self.loop.network.stall(source.name, target.name)
        for number in range(BATCHES):
            builder = BatchBuilder()
            builder.append(b"%d" % number + bytes(BATCH_BYTES), key=b"k", timestamp=1)
            producing = self.put("producer", RETIRED, bytes(builder.build()))
            self.loop.run_until_complete(self.loop.spawn("producer", producing))
        self.loop.network.heal_all()


@pytest.mark.parametrize("request_bytes_max", [65_536, 2 * BATCH_BYTES])
def test_a_backlog_larger_than_any_request_of_a_client_is_moved(request_bytes_max: int) -> None:
    with SimLoop(1) as loop:
        story = BoundedStory(loop, request_bytes_max)
        story.retire()
        story.let_pass(1)
        story.produce_behind_a_stalled_way()
        story.let_pass(60)
        assert is_drained(story.source())
