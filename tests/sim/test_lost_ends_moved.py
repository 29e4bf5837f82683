"""A log that lost its end is moved: whoever copies it comes to an end behind which nobody writes (SPEC R5)."""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_moving import MovingStory
from tests.sim.messages import TOPIC, fetch_request, records_of
from tests.sim.test_cluster_scenes import send

from penstock.core.error_codes import ErrorCode
from penstock.storage.layout import segment_name
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey

RECORDS = 4
FETCH_VERSION = 10
KEPT = pytest.mark.parametrize("kept", [1, 0])


class LostStory(MovingStory):
    """One partition with one replica, which loses all but its first records while its broker is stopped."""

    def lose_all_but(self, kept: int) -> SimBroker:
        self.begin_with(3, replicas=1, clients=False)
        machine = self.leader()
        for _ in range(RECORDS):
            assert self.do(send(machine.name, 1, 500)).error_code == ErrorCode.NONE
        machine.stop()
        path = machine.data / "topics" / TOPIC / "Partition-0" / segment_name(0, ".log")
        file = machine.files.open(path)
        file.truncate(file.size() * kept // RECORDS)
        file.close()
        machine.start()
        self.until(lambda: machine.ready and self.leader() is machine)
        return machine

    def leader(self) -> SimBroker:
        return self.machines[self.state(0).leader - 1]

    def other(self) -> int:
        return self.state(0).leader % 3 + 1

    def offsets_from(self, offset: int) -> list[int]:
        request = fetch_request(0, offset, max_wait_ms=0)
        answer = self.do(SimClient(self.leader().name, PORT).call(ApiKey.FETCH, request, FETCH_VERSION))
        return [record.offset for record in records_of(answer.responses[0].partitions[0], offset)]

    def check(self, kept: int) -> None:
        """What is left is there, and what is new has an offset of its own, also over a crash."""
        written = self.do(send(self.leader().name, -1, 500))
        assert written.error_code == ErrorCode.NONE
        assert written.base_offset >= RECORDS
        machine = self.leader()
        machine.kill()
        machine.start()
        self.until(lambda: machine.ready and self.state(0).leader > 0 and self.leader().ready)
        self.let_pass(1)
        assert self.offsets_from(0)[:kept] == [*range(kept)]
        assert self.offsets_from(written.base_offset) == [written.base_offset]


@pytest.fixture
def story() -> Iterator[LostStory]:
    with SimLoop(1) as loop:
        yield LostStory(loop, {"penstock.fill.empty.brokers": "false"})


@KEPT
def test_it_moves_although_nobody_writes(story: LostStory, kept: int) -> None:
    story.lose_all_but(kept)
    target = story.other()
    assert story.move(0, [target]) is ErrorCode.NONE
    story.until(lambda: story.state(0).replicas == (target,) and story.is_quiet(1))
    story.check(kept)


@KEPT
def test_its_broker_is_drained(story: LostStory, kept: int) -> None:
    story.lose_all_but(kept)
    leaving = story.state(0).leader
    story.drain(leaving)
    story.until(lambda: story.loads()[leaving] == 0 and story.is_quiet(1))
    story.check(kept)


def test_one_that_was_begun_before_goes_on_after_a_restart(story: LostStory) -> None:
    machine = story.lose_all_but(1)
    before, other = story.state(0).leader, story.other()
    story.machines[other - 1].kill()
    assert story.move(0, [before, other]) is ErrorCode.NONE
    story.let_pass(1)
    machine.kill()
    machine.start()
    story.machines[other - 1].start()
    story.until(lambda: len(story.state(0).isr) == 2 and not story.state(0).adding)
    story.check(1)
