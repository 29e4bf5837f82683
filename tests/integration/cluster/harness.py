"""A real cluster as tests see it: its processes, what clients are told of it, and what may befall it."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.integration.cluster.load import Load
from tests.integration.raw import HANG_SECONDS, RawClient, wait_until

from penstock.core.error_codes import ErrorCode
from penstock.storage.layout import LOG
from penstock.testing import BrokerProcess, ClusterProcesses
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.kafka.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PARTITIONS = 3
REPLICAS = 3
# Tests wait for its end again and again. One that ends because the machine is busy makes a test slower, not wrong; a
# machine on which all of them do needs more.
SESSION_MS = int(os.environ.get("PENSTOCK_FAULT_SESSION_MS", "3000"))
# Readers look for a group's coordinator, although they have no group.
SETTINGS = {"zookeeper.session.timeout.ms": str(SESSION_MS), "offsets.topic.num.partitions": "1"}
# Where nobody dies, and nobody must seem to.
LASTING = {**SETTINGS, "zookeeper.session.timeout.ms": "30000"}

_numbers = itertools.count()
_ASK_AGAIN = (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.NOT_CONTROLLER)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a partition is."""

    leader: int
    replicas: list[int]
    isr: list[int]


class Cluster:
    """The processes, an admin client, and a topic of its own."""

    def __init__(
        self, processes: ClusterProcesses, partitions: int = PARTITIONS, replicas: int = REPLICAS
    ) -> None:
        self.processes = processes
        self.partition_count = partitions
        self.replica_count = replicas
        self.admin = AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})
        self.topic = f"orders-{next(_numbers)}"
        self._silent: set[int] = set()
        self.processes.until_known()
        self.create(self.topic, partitions, replicas)
        self.until_whole()

    @property
    def bootstrap(self) -> str:
        return self.processes.bootstrap

    def broker(self, number: int) -> BrokerProcess:
        return self.processes.broker(number)

    def create(self, name: str, partitions: int = PARTITIONS, replicas: int = REPLICAS) -> None:
        config = {"min.insync.replicas": str(min(2, replicas))}
        topic = NewTopic(name, partitions, replicas, config=config)
        self._ask(lambda: self.admin.create_topics([topic])[name], KafkaError.TOPIC_ALREADY_EXISTS)

    def grow(self, partitions: int) -> None:
        """More partitions for the topic."""
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result()
        self.partition_count = partitions

    def delete(self, name: str) -> None:
        self._ask(lambda: self.admin.delete_topics([name])[name], KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _ask(self, begin: Callable[[], Future[None]], done: int) -> None:
        """Again, while ZooKeeper or the controller is away; `done` says that an earlier request was carried out."""

        def is_done() -> bool:
            nonlocal first
            try:
                begin().result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == done and not first:
                    return True
                if code not in _ASK_AGAIN:
                    raise
                first = False
                return False
            return True

        first = True
        self.until(is_done, "the controller does it")

    def reassign(self, replicas: list[list[int]]) -> None:
        """From now on, the topic's partitions move to these."""
        wanted = [
            ReassignablePartition(partition_index=number, replicas=brokers)
            for number, brokers in enumerate(replicas)
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=self.topic, partitions=wanted)]
        )

        def taken() -> bool:
            """A broker that came back a moment ago may not be known to all."""
            asked = self.processes.brokers[self.controller() - 1]
            with RawClient(asked.port, host=asked.host) as client:
                answer = client.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
            codes = [
                answer.error_code,
                *(partition.error_code for partition in answer.responses[0].partitions),
            ]
            return set(codes) == {ErrorCode.NONE}

        self.until(taken, "the cluster moves the partitions")

    def set_broker(self, number: int, name: str, value: str) -> None:
        """A setting of one broker, changed while it runs."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result()

    # -- what clients are told -------------------------------------------------------------------------------

    def metadata(self, *topics: str) -> MetadataResponse:
        """As a broker that answers has it; of all topics where none is named."""
        asked = next(
            broker
            for number, broker in enumerate(self.processes.brokers, 1)
            if broker.is_running and number not in self._silent
        )
        named = [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=named or None, allow_auto_topic_creation=False)
        with RawClient(asked.port, host=asked.host) as client:
            answer: MetadataResponse = client.call(ApiKey.METADATA, 9, request)
            return answer

    def partitions(self) -> list[Placed]:
        """Empty where the broker that is asked has not heard of the topic."""
        found = self.metadata(self.topic).topics[0].partitions
        return [
            Placed(partition.leader_id, list(partition.replica_nodes), list(partition.isr_nodes))
            for partition in sorted(found, key=lambda partition: partition.partition_index)
        ]

    def leader(self, partition: int = 0) -> int:
        return self.partitions()[partition].leader

    def followers(self, partition: int = 0) -> list[int]:
        placed = self.partitions()[partition]
        return [replica for replica in placed.replicas if replica != placed.leader]

    def controller(self) -> int:
        return int(self.metadata().controller_id)

    def replicas_on(self, broker: int) -> int:
        """How many replicas it has, of all topics."""
        return sum(
            broker in partition.replica_nodes
            for topic in self.metadata().topics
            for partition in topic.partitions
        )

    def is_whole(self) -> bool:
        partitions = self.partitions()
        return len(partitions) == self.partition_count and all(
            len(partition.replicas) == len(partition.isr) == self.replica_count and partition.leader > 0
            for partition in partitions
        )

    def is_whole_everywhere(self) -> bool:
        """All topics: as many replicas as they should have, all of them in sync."""
        return all(
            len(partition.replica_nodes) == len(partition.isr_nodes) == self.replica_count
            for topic in self.metadata().topics
            for partition in topic.partitions
        )

    def is_settled_with(self, broker: int, takes_part: bool) -> bool:
        """Nothing moves, nothing lacks a replica, and the broker has some; or has none."""
        return self.is_whole_everywhere() and (self.replicas_on(broker) > 0) == takes_part

    def until_whole(self) -> None:
        self.until(self.is_whole, "all replicas in sync")

    def until(self, condition: Callable[[], bool], what: str, patience_s: float = HANG_SECONDS) -> None:
        wait_until(condition, what, patience_s)

    def load(self) -> Load:
        return Load(self.bootstrap, self.topic, self.partition_count)

    # -- what is on the disks --------------------------------------------------------------------------------

    def segments(self, broker: int, partition: int = 0) -> list[Path]:
        """The files that hold a replica's messages, oldest first."""
        folder = self.broker(broker).data_dir / "topics" / self.topic / f"Partition-{partition}"
        return sorted(folder.glob(f"*{LOG}"))

    def log_bytes(self, broker: int, partition: int = 0) -> bytes:
        return b"".join(path.read_bytes() for path in self.segments(broker, partition))

    def until_replicas_are_equal(self) -> None:
        """After the load: every replica has the same bytes."""

        def equal() -> bool:
            return all(
                len({self.log_bytes(broker, number) for broker in partition.replicas}) == 1
                for number, partition in enumerate(self.partitions())
            )

        self.until(equal, "all replicas are byte for byte the same")

    # -- what befalls it -------------------------------------------------------------------------------------

    def wipe(self, broker: int) -> None:
        """A new disk, with nothing on it."""
        shutil.rmtree(self.broker(broker).data_dir)

    @contextmanager
    def paused(self, *brokers: int) -> Iterator[None]:
        """Stopped as by a debugger: connections stay open, and nobody answers."""
        self._silent.update(brokers)
        for number in brokers:
            self.broker(number).pause()
        try:
            yield
        finally:
            for number in brokers:
                self.broker(number).resume()
            self._silent.difference_update(brokers)

    @contextmanager
    def unheard(self, broker: int) -> Iterator[None]:
        """Do not ask this one meanwhile: it may not answer, or not know."""
        self._silent.add(broker)
        try:
            yield
        finally:
            self._silent.discard(broker)

    @contextmanager
    def without_zookeeper(self) -> Iterator[None]:
        self.processes.zookeeper.kill()
        try:
            yield
        finally:
            self.processes.zookeeper.start()


def flip_a_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        was = file.read(1)
        file.seek(position)
        file.write(bytes([was[0] ^ 0xFF]))


def cut_in_half(path: Path) -> None:
    """The end of a file that a power cut took: nothing of a young log was ever synced."""
    os.truncate(path, path.stat().st_size // 2)
