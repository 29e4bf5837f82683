"""Three brokers of each kind under the same requests: what leaders, followers and bystanders answer."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.clients.oracle.batches import Batch
from tests.clients.oracle.compare import differences
from tests.clients.oracle.model import API_NAMES, CREATE_TOPICS, FETCH, PRODUCE, Case
from tests.clients.oracle.normal import normalise
from tests.clients.oracle.run import Finding
from tests.clients.oracle.sides import Outcome, Side
from tests.clients.oracle.world import EPOCH_MS, produce_request
from tools.peers.clusters import BROKERS, ClusterPeer, KafkaCluster, PenstockCluster

from penstock.wire.kafka.generated import create_topics, fetch
from penstock.wire.kafka.generated.index import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEADER, FOLLOWER, BYSTANDER = BROKERS
# Topic -> the replicas of its partitions, the first of them leads.
TOPICS: dict[str, list[list[int]]] = {
    "led": [[LEADER, FOLLOWER], [FOLLOWER, LEADER]],
    "moved": [[LEADER, FOLLOWER]],
    "turned": [[LEADER, FOLLOWER]],
    # Penstock gives something to a broker that has nothing.
    "apart": [[BYSTANDER]],
}
# Kafka tells clients of some broker that lives, which will forward what they ask.
ANYBODY = frozenset({"controller_id"})
EVENTUALLY_S = 30.0
POLL_S = 0.05


@dataclass
class ClusterSide:
    """One cluster under comparison: a connection to each broker."""

    name: str
    brokers: dict[int, Side]

    def __post_init__(self) -> None:
        self._broker_of = {side.port: number for number, side in self.brokers.items()}

    def ask(self, broker: int, api_key: int, version: int, build: Callable[[Side], Any]) -> Outcome:
        side = self.brokers[broker]
        case = Case(api_key, version, "", True, build)
        side.send(case)
        return side.receive(case)

    def plain(self, broker: int, message: Any) -> Any:
        return self._known(normalise(message, self.brokers[broker]))

    def _known(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._known(entry) for entry in value]
        if isinstance(value, dict):
            return {
                name: f"<of {self._broker_of.get(field)}>" if name == "port" else self._known(field)
                for name, field in value.items()
                if name not in ANYBODY
            }
        return value

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + EVENTUALLY_S
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: still waiting for {what} after {EVENTUALLY_S:.0f} s")
            time.sleep(POLL_S)

    def begin(self) -> None:
        """The topics, and a record in each partition, which both its replicas have."""
        request = create_topics.CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                create_topics.CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
                        for number, replicas in enumerate(plan)
                    ],
                )
                for name, plan in TOPICS.items()
            ],
        )
        answer = self.brokers[LEADER].call(CREATE_TOPICS, 4, request)
        assert [topic.error_code for topic in answer.topics] == [0] * len(TOPICS)
        for broker in BROKERS:
            self.until(partial(self._knows, broker), f"broker {broker} to know the topics")
        for name, plan in TOPICS.items():
            for number, (leader, *followers) in enumerate(plan):
                self._write(name, number, leader)
                for follower in followers:
                    self.until(
                        partial(self._shows, follower, name, number), f"{name}-{number} at broker {follower}"
                    )

    def _knows(self, broker: int) -> bool:
        found = self.brokers[broker].look()
        # Who asks tells which id is his own: here all ids are told as they are.
        self.brokers[broker].node_id = -1
        return all(
            name in found
            and len(found[name].partitions) == len(plan)
            and all(
                sorted(partition.isr_nodes) == sorted(partition.replica_nodes)
                for partition in found[name].partitions
            )
            for name, plan in TOPICS.items()
        )

    def _write(self, topic: str, partition: int, leader: int) -> None:
        request = produce_request(topic, partition, Batch((b"a", b"b"), timestamp_ms=EPOCH_MS).encode(), -1)

        def written() -> bool:
            answer = self.brokers[leader].call(PRODUCE, 7, request)
            return bool(answer.responses[0].partition_responses[0].error_code == 0)

        self.until(written, f"{topic}-{partition} to be written")

    def _shows(self, broker: int, topic: str, partition: int) -> bool:
        """A follower has heard that what it has is committed."""
        part = fetch.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = fetch.FetchTopic(topic=topic, partitions=[part])
        request = fetch.FetchRequest(max_wait_ms=5, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
        answer = self.brokers[broker].call(FETCH, 12, request)
        return bool(answer.responses[0].partitions[0].records)


@contextmanager
def compared_clusters(directory: Path) -> Iterator[tuple[ClusterSide, ClusterSide]]:
    with ExitStack() as stack:
        found = []
        for name, kind in (("kafka", KafkaCluster), ("penstock", PenstockCluster)):
            peer: ClusterPeer = stack.enter_context(kind(directory / name))
            brokers = {
                number: Side(f"{name} {number}", broker.port) for number, broker in peer.brokers.items()
            }
            for side in brokers.values():
                stack.callback(side.close)
            found.append(ClusterSide(name, brokers))
            found[-1].begin()
        yield found[0], found[1]


def compare(
    sides: tuple[ClusterSide, ClusterSide],
    label: str,
    broker: int,
    api_key: int,
    build: Callable[[Side], Any],
    versions: range | None = None,
) -> list[Finding]:
    """Ask one broker of each cluster, in every version."""
    _, low, high, _ = APIS[api_key]
    name, label = API_NAMES[api_key], f"{label}, at broker {broker}"
    found = []
    for version in versions or range(low, high + 1):
        left, right = (side.ask(broker, api_key, version, build) for side in sides)
        if left.kind != right.kind:
            found.append(Finding(name, version, label, "<outcome>", left.kind, right.kind, ""))
            continue
        plain = [
            side.plain(broker, outcome.message) for side, outcome in zip(sides, (left, right), strict=True)
        ]
        found += [
            Finding(name, version, label, difference.path, difference.left, difference.right, "")
            for difference in differences(*plain)
        ]
    return found
