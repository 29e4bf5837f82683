"""A simulated cluster whose replicas move: clients write and read all the while, and nothing of it may show."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.sim.cluster_clients import Violation, create_topic, follow, write
from tests.sim.cluster_story import Story, bytes_below
from tests.sim.messages import NETWORK_TROUBLE, PARTITIONS, PRODUCERS, TOPIC

from penstock.controller.healer import Outlook
from penstock.controller.healing import REPLICAS_TO
from penstock.controller.image_queries import DRAINING
from penstock.coordination import nodes
from penstock.coordination.image import ClusterImage
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.replication.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    alter_partition_reassignments,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
)

MOVING = {
    "penstock.heal.grace.ms": "2000",
    "leader.imbalance.check.interval.seconds": "3",
}
_SET = 0
_BROKER = 4


class MovingStory(Story):
    """Four machines, of which some may not have been switched on yet."""

    def __init__(self, loop: SimLoop, settings: dict[str, str] | None = None) -> None:
        super().__init__(loop, {**MOVING, **(settings or {})}, synced=False, brokers=4)

    def begin_with(self, machines: int, replicas: int, *, clients: bool = True) -> None:
        for machine in self.machines[:machines]:
            machine.start()
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines[:machines]))
        configs = {"min.insync.replicas": str(min(replicas, 2)), "internal.segment.bytes": "2000"}
        self.do(create_topic(self.client("admin"), replicas, configs))
        if clients:
            for number in range(PRODUCERS):
                name = f"producer-{number}"
                self.spawn(name, write(self.history, self.client(name), number, self.loop.random(name)))
            for partition in range(PARTITIONS):
                name = f"reader-{partition}"
                self.spawn(name, follow(self.history, self.client(name), partition))
            self.until(lambda: len(self.history.acknowledged) > 20)

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(self.loop.spawn("admin", work))

    def until(self, condition: Callable[[], bool], seconds: float = 60, step_s: float = 0.05) -> None:
        for _ in range(int(seconds / step_s)):
            if condition():
                return
            self.let_pass(step_s)
        raise Violation(f"it never came to be: {list(self.states())}")

    def ask(self, api: ApiKey, request: Any) -> Any:
        live = [machine for machine in self.machines if machine.ready]
        return self.do(SimClient(live[0].name, PORT).call(api, request))

    # -- what an administrator does --------------------------------------------------------------------------

    def drain(self, broker: int, *, value: str = "true") -> None:
        self.configure(broker, DRAINING, value)

    def configure(self, broker: int, name: str, value: str) -> None:
        request = _setting(broker, name, value)
        machine = self.machines[broker - 1]
        answer = self.do(SimClient(machine.name, PORT).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request))
        assert answer.responses[0].error_code == ErrorCode.NONE

    def move(self, index: int, replicas: list[int] | None, *, topic: str = TOPIC) -> ErrorCode:
        answer = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, wanted_replicas(index, replicas, topic))
        assert answer.error_code == ErrorCode.NONE
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def moves(self) -> dict[int, tuple[list[int], list[int], list[int]]]:
        request = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
        answer = self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request)
        return {
            partition.partition_index: (
                partition.replicas,
                partition.adding_replicas,
                partition.removing_replicas,
            )
            for topic in answer.topics
            for partition in topic.partitions
        }

    def elect(self, index: int, kind: int) -> ErrorCode:
        partitions = elect_leaders.TopicPartitions(topic=TOPIC, partitions=[index])
        request = elect_leaders.ElectLeadersRequest(
            election_type=kind, topic_partitions=[partitions], timeout_ms=5000
        )
        answer = self.ask(ApiKey.ELECT_LEADERS, request)
        assert answer.error_code == ErrorCode.NONE
        return ErrorCode(answer.replica_election_results[0].partition_result[0].error_code)

    def images(self) -> list[ClusterImage]:
        """The cluster as each broker that runs knows it."""
        return [machine.broker.metadata.image for machine in self.machines if machine.broker is not None]

    def unregister(self, broker: int) -> ErrorCode:
        request = unregister_broker.UnregisterBrokerRequest(broker_id=broker)
        return ErrorCode(self.ask(ApiKey.UNREGISTER_BROKER, request).error_code)

    def groups_topic(self) -> Callable[[], list[PartitionState]]:
        """Have the topic for groups made; gives its partitions as they are whenever it is asked."""
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"])

        def states() -> list[PartitionState]:
            live = next(machine.broker for machine in self.machines if machine.broker is not None)
            topic = live.metadata.image.topics.get(OFFSETS_TOPIC)
            return [] if topic is None else list(topic.partitions)

        self.ask(ApiKey.FIND_COORDINATOR, request)
        self.until(lambda: bool(states()))
        return states

    def wishes(self) -> dict[str, str]:
        """How many replicas topics shall have that have fewer."""
        live = next(machine.broker for machine in self.machines if machine.broker is not None)
        topics = live.metadata.image.topics.values()
        return {topic.name: topic.configs[REPLICAS_TO] for topic in topics if REPLICAS_TO in topic.configs}

    # -- by chance, whatever becomes of it -------------------------------------------------------------------

    def disturb(self) -> None:
        """Somebody moves a partition, takes a move back, or begins or ends to drain a broker."""
        rng = self.rng
        machine = rng.choice(self.machines)
        match rng.choice(("move", "move", "move", "cancel", "drain", "serve")):
            case "move" | "cancel" as what:
                target = rng.sample(range(1, 5), 3) if what == "move" else None
                api, request = (
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    wanted_replicas(rng.randrange(PARTITIONS), target),
                )
            case what:
                value = "true" if what == "drain" else "false"
                number = self.machines.index(machine) + 1
                api, request = ApiKey.INCREMENTAL_ALTER_CONFIGS, _setting(number, DRAINING, value)
        self.try_at(machine, api, request)

    def try_at(self, machine: SimBroker, api: ApiKey, request: Any) -> None:
        self.spawn("admin", _try(machine.name, api, request))

    def stop_draining(self) -> None:
        for number in range(1, len(self.machines) + 1):
            path = nodes.broker_configs_path(number)
            self.until(lambda number=number: self.machines[number - 1].ready)  # type: ignore[misc]
            while b"true" in getattr(self.store.state.nodes.get(path), "data", b""):
                request = _setting(number, DRAINING, "false")
                machine = self.machines[number - 1]
                self.do(_try(machine.name, ApiKey.INCREMENTAL_ALTER_CONFIGS, request))
                self.let_pass(0.2)

    def _is_whole(self) -> bool:
        if not all(machine.ready and self._is_settled(machine) for machine in self.machines):
            return False
        return self.is_quiet(3) and not any(state.suspects for state in self.states())

    # -- what is -----------------------------------------------------------------------------------------------

    def state(self, index: int) -> PartitionState:
        return self._state(index)

    def loads(self) -> dict[int, int]:
        return {
            number: sum(number in state.replicas for state in self.states())
            for number in range(1, len(self.machines) + 1)
        }

    def is_quiet(self, replicas: int) -> bool:
        """Nothing moves, and all replicas are in sync."""
        return all(
            not state.adding and not state.removing and len(state.isr) == len(state.replicas) == replicas
            for state in self.states()
        )

    def outlook(self) -> Outlook:
        """Of the controller."""
        for machine in self.machines:
            if machine.broker is not None and machine.broker.cluster.controller.is_active:
                return machine.broker.cluster.controller.care.outlook
        return Outlook()

    def assigned(self, broker: int) -> list[int]:
        """Which partitions should be there."""
        return [index for index in range(PARTITIONS) if broker in self.state(index).replicas]

    def hosted(self, broker: int) -> list[int]:
        """Which partitions have a log there."""
        running = self.machines[broker - 1].broker
        topic = None if running is None else running.table.by_name.get(TOPIC.encode())
        return [] if topic is None else sorted(topic.partitions)

    def _check_replicas(self) -> None:
        for index in range(PARTITIONS):
            replicas = [self.replica(broker, index) for broker in self.state(index).replicas]
            limit = min(replica.high_watermark for replica in replicas)
            contents = [bytes_below(partition, limit) for partition in replicas]
            if any(content != contents[0] for content in contents) or (limit and not contents[0]):
                raise Violation(f"the replicas of {index} differ below {limit}")

    def replica(self, broker: int, index: int) -> Partition:
        machine: SimBroker = self.machines[broker - 1]
        assert machine.broker is not None
        return machine.broker.table.by_name[TOPIC.encode()].partitions[index]


async def _try(host: str, api: ApiKey, request: Any) -> None:
    with suppress(*NETWORK_TROUBLE):
        await SimClient(host, PORT).call(api, request)


def wanted_replicas(index: int, replicas: list[int] | None, topic: str = TOPIC) -> Any:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
    wanted = alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[wanted])


def _setting(broker: int, name: str, value: str) -> Any:
    change = incremental_alter_configs.AlterableConfig(name=name, config_operation=_SET, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=_BROKER, resource_name=str(broker), configs=[change]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
