"""A coordinator of transactions that was replaced and has not heard of it: what it says of memory alone is not told."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.cluster_transactions import SETTINGS
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import add_partitions_to_txn, end_txn, find_coordinator, init_producer_id

ID = "worker"


class Transactions(Scene):
    """One transactional id, whose requests go to whichever broker the test says."""

    producer = (-1, -1)

    def begin(self) -> None:
        super().begin()
        self.coordinator()
        self.until_whole()

    def coordinator(self) -> SimBroker:
        """As those know it who hear of changes."""
        request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
        while True:
            for machine in (each for each in self.machines if not each._cut_off):
                answer = self.do(SimClient(machine.name, PORT).call(ApiKey.FIND_COORDINATOR, request))
                found = answer.coordinators[0]
                if found.error_code == ErrorCode.NONE:
                    coordinator = self.machines[found.node_id - 1]
                    if not coordinator._cut_off:
                        return coordinator
            self.let_pass(0.1)

    def ask(self, at: SimBroker, api: ApiKey, request: Any, version: int) -> Any:
        """Again while it is busy with the transaction before."""
        while True:
            answer = self.do(SimClient(at.name, PORT).call(api, request, version))
            code = getattr(answer, "error_code", None)
            if code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return answer
            self.let_pass(0.05)

    def init(self, at: SimBroker) -> ErrorCode:
        request = init_producer_id.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        answer = self.ask(at, ApiKey.INIT_PRODUCER_ID, request, 4)
        self.producer = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    def add(self, at: SimBroker) -> ErrorCode:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        while True:
            answer = self.ask(at, ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
            topic = answer.results_by_topic_v3_and_below[0]
            code = ErrorCode(topic.results_by_partition[0].partition_error_code)
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return code
            self.let_pass(0.05)

    def commit(self, at: SimBroker) -> ErrorCode:
        request = end_txn.EndTxnRequest(
            transactional_id=ID, producer_id=self.producer[0], producer_epoch=self.producer[1], committed=True
        )
        return ErrorCode(self.ask(at, ApiKey.END_TXN, request, 3).error_code)

    def replaced(self) -> tuple[SimBroker, SimBroker]:
        """Who coordinated until now and cannot hear that it is over, and who does instead."""
        before = self.coordinator()
        before.cut_off()
        self.let_pass(SESSION_SECONDS * 3)
        after = self.coordinator()
        assert after is not before
        return before, after


@pytest.fixture
def scene() -> Iterator[Transactions]:
    with SimLoop(1) as loop:
        scene = Transactions(loop, SETTINGS)
        scene.begin()
        assert scene.init(scene.coordinator()) is ErrorCode.NONE
        assert scene.add(scene.coordinator()) is ErrorCode.NONE
        yield scene


def test_it_does_not_take_the_next_commit_for_the_one_it_knows(scene: Transactions) -> None:
    assert scene.commit(scene.coordinator()) is ErrorCode.NONE
    scene.let_pass(1)
    before, after = scene.replaced()
    assert scene.add(after) is ErrorCode.NONE
    assert scene.commit(before) is ErrorCode.NOT_COORDINATOR
    assert scene.commit(after) is ErrorCode.NONE


def test_it_does_not_fence_a_producer_that_it_has_not_heard_of(scene: Transactions) -> None:
    before, after = scene.replaced()
    assert scene.init(after) is ErrorCode.NONE
    assert scene.add(after) is ErrorCode.NONE
    for ask in (scene.add, scene.commit):
        assert ask(before) is ErrorCode.NOT_COORDINATOR


def test_it_says_what_it_knows_as_long_as_the_store_says_that_it_leads(scene: Transactions) -> None:
    coordinator, current = scene.coordinator(), scene.producer
    assert scene.commit(coordinator) is ErrorCode.NONE
    scene.let_pass(1)
    assert scene.commit(coordinator) is ErrorCode.NONE
    scene.producer = current[0], current[1] + 1
    assert scene.commit(coordinator) is ErrorCode.PRODUCER_FENCED
