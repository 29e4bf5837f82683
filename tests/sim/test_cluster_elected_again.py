"""A topic is made again while a broker is away, and then elected by log end: nobody leads by a log of the old one.

Broker 2, which is cut off from the store, still has the deleted topic when it is asked how far the new one's log is. By
the topic's name it would lead with an empty log, and what broker 1 had acknowledged alone would be cut (SPEC R1).
"""

from typing import Any

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, create_request, produce_request
from tests.sim.test_cluster_scenes import Scene

from penstock.controller.election import ReplicaEnd
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.handlers import log_ends
from penstock.replication.table import PartitionTable
from penstock.server import cluster
from penstock.services.list_offsets import log_end_of
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_topics

CONFIGS = {"min.insync.replicas": "1", "penstock.ack.after": "synced"}
OTHERS = [f"before-{number}" for number in range(20)]  # put away before ours
_DELETE_BY_NAME = 5
_BACK_SECONDS = 5


class AgainScene(Scene):
    """Two brokers, of which the first is the controller."""

    def tell(self) -> bool:
        """Whether what was acknowledged is on both in the end."""
        first, second = self.machines
        for machine in self.machines:
            machine.start()
            self.loop.run_until(lambda machine=machine: machine.ready)
        for name in (*OTHERS, TOPIC):
            self.do(create_topic(self.client("admin"), 2, CONFIGS, name))
        self.let_pass(3)
        for machine in (
            first,
            second,
        ) * 3:  # the old topic has had many leaders, the second broker not the last
            machine.kill()
            self.let_pass(SESSION_SECONDS + 1)
            machine.start()
            self.let_pass(_BACK_SECONDS)
        for index in range(2):
            assert self.ask(first, ApiKey.PRODUCE, self.batch(index, b"old")) == ErrorCode.NONE
        self.let_pass(1)
        second.cut_off()
        self.let_pass(0.05)
        deletion = delete_topics.DeleteTopicsRequest(topic_names=[*OTHERS, TOPIC], timeout_ms=1000)
        self.do(SimClient(first.name, PORT).call(ApiKey.DELETE_TOPICS, deletion, _DELETE_BY_NAME))
        self.do(SimClient(first.name, PORT).call(ApiKey.CREATE_TOPICS, create_request(CONFIGS, replicas=2)))
        index = next(number for number in range(2) if self.state_at(first, number).leader == 1)
        # It is told when the second one's session is over, and the first one alone is in sync.
        assert self.ask(first, ApiKey.PRODUCE, self.batch(index, b"new")) == ErrorCode.NONE
        first.power_cut()
        self.loop.slow_down(second.name, 50)
        second.reach_store()
        first.start()
        self.let_pass(10)
        self.loop.quicken(second.name)
        self.let_pass(10)
        logs = [replica_of(machine, index).log for machine in self.machines]
        return all(b"new" in log.segments[0].file.pread(1000, 0) for log in logs)

    def batch(self, index: int, value: bytes) -> Any:
        return produce_request(index, batch_of([value] * 5), timeout_ms=30_000)

    def ask(self, machine: SimBroker, api: ApiKey, request: Any) -> int:
        answer = self.do(SimClient(machine.name, PORT, 60).call(api, request))
        return int(answer.responses[0].partition_responses[0].error_code)

    def state_at(self, machine: SimBroker, index: int) -> PartitionState:
        assert machine.broker is not None
        return machine.broker.metadata.image.topics[TOPIC].partitions[index]


def tell(seed: int) -> bool:
    with SimLoop(seed) as loop:
        return AgainScene(loop, brokers=2).tell()


SEEDS = [1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_kept(seed: int) -> None:
    assert tell(seed)


def by_name(table: PartitionTable, topic_id: bytes, index: int, epoch: int) -> ReplicaEnd:
    return log_end_of(table, table.by_name[TOPIC.encode()].id, index, epoch)


def test_it_finds_ends_that_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster, log_ends):
        monkeypatch.setattr(module, "log_end_of", by_name)
    assert not all(map(tell, SEEDS))
