"""Single scenes of a cluster, told one by one: what clients are promised when something known happens."""

import asyncio
from typing import Any

import pytest
from tests.sim.cluster_clients import ClusterClient, create_topic
from tests.sim.cluster_story import BROKERS, Story, replica_of
from tests.sim.messages import TOPIC, batch_of, produce_request

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SESSION_SECONDS, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    delete_records,
    describe_groups,
    fetch,
    find_coordinator,
    incremental_alter_configs,
)

_TOPIC = 2
_SET = 0


class Scene(Story):
    """A whole cluster with a topic and nobody who writes to it yet."""

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.do(create_topic(self.client("admin"), BROKERS, {"min.insync.replicas": "2"}))
        self.until_whole()

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(self.loop.spawn("admin", work))

    def until_whole(self) -> None:
        for _ in range(200):
            if self._is_whole():
                return
            self.let_pass(0.1)
        raise AssertionError(f"not in sync: {list(self.states())}")

    def leader(self, index: int = 0) -> SimBroker:
        return self.machines[self._state(index).leader - 1]

    def followers(self, index: int = 0) -> list[SimBroker]:
        return [machine for machine in self.machines if machine is not self.leader(index)]

    def produce(self, acks: int, timeout_ms: int = 500, at: SimBroker | None = None) -> ErrorCode:
        return ErrorCode(self.do(send((at or self.leader()).name, acks, timeout_ms)).error_code)

    def set_topic(self, setting: str, value: str) -> None:
        self.set_topic_at(self.leader(), setting, value)

    def set_topic_at(self, machine: SimBroker, setting: str, value: str) -> None:
        request = altering(setting, value)
        answer = self.do(SimClient(machine.name, PORT).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request))
        assert answer.responses[0].error_code == ErrorCode.NONE


def altering(setting: str, value: str) -> Any:
    config = incremental_alter_configs.AlterableConfig(name=setting, config_operation=_SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=_TOPIC, resource_name=TOPIC, configs=[config]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


async def send(
    host: str, acks: int, timeout_ms: int, client: SimClient | None = None, records: int = 1
) -> Any:
    client = client or SimClient(host, PORT)
    request = produce_request(0, batch_of([b"x"] * records), acks=acks, timeout_ms=timeout_ms)
    answer = await client.call(ApiKey.PRODUCE, request)
    return answer.responses[0].partition_responses[0]


@pytest.fixture(params=range(3))
def scene(request: pytest.FixtureRequest) -> Any:
    with SimLoop(request.param) as loop:
        scene = Scene(loop)
        scene.begin()
        yield scene


def test_acks_2_of_three_waits_for_exactly_two(scene: Scene) -> None:
    broker, other = scene.followers()
    assert scene.produce(2) is ErrorCode.NONE
    for machine in (broker, other):
        scene.loop.network.stall(scene.leader().name, machine.name)
    assert scene.produce(1) is ErrorCode.NONE
    assert scene.produce(2) is ErrorCode.REQUEST_TIMED_OUT
    scene.loop.network.heal(scene.leader().name, broker.name)
    scene.let_pass(0.5)
    assert scene.produce(2) is ErrorCode.NONE
    assert scene.produce(3) is ErrorCode.REQUEST_TIMED_OUT
    assert scene.produce(4) is ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_all_is_refused_while_too_few_are_in_sync(scene: Scene) -> None:
    leader = scene.leader()
    for machine in scene.followers():
        machine.kill()
    scene.let_pass(SESSION_SECONDS + 1)
    end = replica_of(leader, 0).log.end_offset
    for acks in (-1, 2, 3):
        assert scene.produce(acks, at=leader) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica_of(leader, 0).log.end_offset == end, (
        "what is refused is not written, so it may be sent again"
    )
    assert scene.produce(1, at=leader) is ErrorCode.NONE
    for machine in scene.machines:
        if not machine.running:
            machine.start()
    scene.until_whole()
    assert scene.produce(-1) is ErrorCode.NONE


def test_a_client_that_fetches_in_a_followers_name_makes_nothing_count_as_replicated(scene: Scene) -> None:
    leader = scene.leader()
    for machine in scene.followers():
        scene.loop.network.stall(leader.name, machine.name)
    partition = replica_of(leader, 0)
    assert scene.produce(1) is ErrorCode.NONE
    assert leader.broker is not None
    for machine in scene.followers():
        registered = leader.broker.metadata.image.brokers[scene.machines.index(machine) + 1]
        for epoch in (2**60, registered.epoch):  # which anybody can learn
            asked = as_follower(partition.topic_id, registered.id, epoch, offset=1)
            answer = scene.do(SimClient(leader.name, PORT).call(ApiKey.FETCH, asked, 17))
            told = answer.responses[0].partitions[0]
            assert (told.error_code, told.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert partition.high_watermark == 0
    # Nor does it keep the real ones from being heard.
    scene.loop.network.heal_all()
    scene.until_whole()
    assert scene.produce(-1) is ErrorCode.NONE


def as_follower(topic_id: bytes, broker: int, broker_epoch: int, offset: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=broker, replica_epoch=broker_epoch),
        max_bytes=1000,
        topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


def test_whoever_does_not_lead_says_so(scene: Scene) -> None:
    assert scene.produce(-1, at=scene.followers()[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_asks_first_for_a_coordinator_finds_one_that_knows_it(scene: Scene) -> None:
    wanted = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"])

    async def find(client: ClusterClient) -> tuple[list[ErrorCode], str]:
        told: list[ErrorCode] = []
        while True:
            found = (await client.ask_any(ApiKey.FIND_COORDINATOR, wanted)).coordinators[0]
            told.append(ErrorCode(found.error_code))
            if found.error_code == ErrorCode.NONE:
                return told, found.host
            await asyncio.sleep(0.1)

    told, host = scene.do(find(scene.client("member")))
    assert set(told[:-1]) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    request = describe_groups.DescribeGroupsRequest(groups=["billing"])
    described = scene.do(SimClient(host, PORT).call(ApiKey.DESCRIBE_GROUPS, request, 5)).groups[0]
    assert described.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_dead_leader_is_replaced_right_after_its_session(scene: Scene) -> None:
    before = scene.leader()
    before.kill()
    died = scene.loop.time()
    while scene.leader() is before or not scene.leader().running:
        scene.let_pass(0.01)
    assert scene.loop.time() - died < SESSION_SECONDS + 0.5
    scene.let_pass(0.3)
    assert scene.produce(-1) is ErrorCode.NONE


def test_a_rolling_restart_fails_no_produce(scene: Scene) -> None:
    told: list[ErrorCode] = []

    async def keep_writing(client: ClusterClient) -> None:
        request = produce_request(0, batch_of([b"x"]), timeout_ms=3000)
        while True:
            try:
                answered = await client.ask_leader(0, ApiKey.PRODUCE, request)
            except ConnectionError:
                continue  # a broker that is gone is noticed before anything was sent to it
            told.append(ErrorCode(answered.responses[0].partition_responses[0].error_code))
            if told[-1] is not ErrorCode.NONE:
                client.forget(0)
            await asyncio.sleep(0.02)

    scene.spawn("producer-0", keep_writing(scene.client("producer-0")))
    for machine in scene.machines:
        scene.let_pass(0.5)
        machine.stop()
        scene.let_pass(0.5)
        machine.start()
        scene.until_whole()
    assert told.count(ErrorCode.NONE) > 100
    assert set(told) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_all_killed_at_once_and_back_lose_nothing(scene: Scene) -> None:
    for _ in range(5):
        assert scene.produce(-1) is ErrorCode.NONE
    for machine in scene.machines:
        machine.kill()
    for machine in scene.machines:
        machine.start()
    scene.until_whole()
    leader = scene.leader()
    assert leader.broker is not None
    assert leader.broker.table.by_name[TOPIC.encode()].partitions[0].high_watermark == 5


def test_a_follower_that_retention_overtook_begins_where_its_leader_does(scene: Scene) -> None:
    away = scene.followers()[0]
    away.kill()
    scene.let_pass(SESSION_SECONDS + 0.5)
    for _ in range(5):
        assert scene.produce(-1) is ErrorCode.NONE
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=4)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=TOPIC, partitions=[partition])], timeout_ms=1000
    )
    scene.do(SimClient(scene.leader().name, PORT).call(ApiKey.DELETE_RECORDS, request))
    away.start()
    scene.until_whole()
    assert away.broker is not None
    log = away.broker.table.by_name[TOPIC.encode()].partitions[0].log
    assert (log.start_offset, log.end_offset) == (4, 5)
