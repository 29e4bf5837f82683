"""Topics administered in a live broker process: by unchanged clients, from many connections, across a crash."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.integration.scenarios.peer import running_peer
from tests.integration.scenarios.raw import RawConnection
from tools.peers import PenstockPeer

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, delete_topics, fetch, list_offsets, metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.peers import BrokerProcess

# The libraries' own deprecated calls are not this project's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WAIT_S = 30
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_peer() as peer:
        yield peer


@pytest.fixture
def topic() -> str:
    return f"admin-{next(_numbers)}"


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def done(futures: dict[str, Future[Any]]) -> dict[str, str | None]:
    """What became of each, None for well, else the name of the error."""
    outcome: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            future.result(WAIT_S)
            outcome[name] = None
        except KafkaException as error:
            outcome[name] = error.args[0].name()
    return outcome


def create(connection: RawConnection, name: str, partitions: int = 1) -> int:
    wanted = create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    return int(connection.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code)


def delete(connection: RawConnection, name: str) -> int:
    state = delete_topics.DeleteTopicState(name=name)
    request = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=30_000)
    return int(connection.call(ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code)


def described(connection: RawConnection, name: str) -> Any:
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    return connection.call(ApiKey.METADATA, 12, request).topics[0]


def end_offset(connection: RawConnection, name: str) -> int:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = list_offsets.ListOffsetsTopic(name=name, partitions=[partition])
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked])
    (answer,) = connection.call(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions
    assert answer.error_code == 0
    return int(answer.offset)


def produce(broker: BrokerProcess, name: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, b"value", partition=0)
    assert producer.flush(WAIT_S) == 0


def test_confluent_kafka_creates_grows_describes_and_deletes(admin: AdminClient, topic: str) -> None:
    other, illegal = topic + "-other", topic + "/x"
    wanted = [
        NewTopic(topic, 2, 1, config={"retention.ms": "1000"}),
        NewTopic(other, config={"retention.ms": "soon"}),
        NewTopic(illegal),
    ]
    assert done(admin.create_topics(wanted)) == {
        topic: None,
        other: "INVALID_CONFIG",
        illegal: "TOPIC_EXCEPTION",
    }
    assert done(admin.create_topics(wanted[:1]))[topic] == "TOPIC_ALREADY_EXISTS"
    assert done(admin.create_topics([NewTopic(other)], validate_only=True)) == {other: None}
    assert done(admin.create_partitions([NewPartitions(topic, 5)])) == {topic: None}
    assert done(admin.create_partitions([NewPartitions(topic, 4)])) == {topic: "INVALID_PARTITIONS"}
    listed = admin.list_topics(timeout=WAIT_S)
    assert len(listed.topics[topic].partitions) == 5
    assert other not in listed.topics
    (found,) = admin.describe_topics(TopicCollection([topic])).values()
    assert len(found.result(WAIT_S).partitions) == 5
    cluster = admin.describe_cluster().result(WAIT_S)
    assert (cluster.cluster_id, len(cluster.nodes)) == (listed.cluster_id, 1)
    assert done(admin.delete_topics([topic, other])) == {topic: None, other: "UNKNOWN_TOPIC_OR_PART"}
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


def test_kafka_python_creates_describes_and_deletes(broker: BrokerProcess, topic: str) -> None:
    from kafka.admin import KafkaAdminClient, NewTopic  # warns on import, which is filtered only inside tests

    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        client.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
        assert topic in client.list_topics()
        (found,) = client.describe_topics([topic])
        assert len(found["partitions"]) == 3
        client.delete_topics([topic])
        assert topic not in client.list_topics()
    finally:
        client.close()


def test_a_producer_needs_no_topic_created_before(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic)
    with RawConnection(broker.port) as connection:
        assert end_offset(connection, topic) == 1


def test_of_many_connections_that_create_a_topic_one_wins(broker: BrokerProcess, topic: str) -> None:
    connections = [RawConnection(broker.port) for _ in range(8)]
    with ThreadPoolExecutor(len(connections)) as threads:
        codes = list(threads.map(lambda connection: create(connection, topic), connections))
    for connection in connections:
        connection.close()
    assert sorted(codes) == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 7


def test_creation_and_deletion_race_and_the_broker_stays_whole(broker: BrokerProcess, topic: str) -> None:
    def churn(number: int) -> set[int]:
        with RawConnection(broker.port) as connection:
            act = create if number % 2 else delete
            return {act(connection, topic) for _ in range(15)}

    with ThreadPoolExecutor(4) as threads:
        codes = set().union(*threads.map(churn, range(4)))
    assert codes <= {0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with RawConnection(broker.port) as connection:
        delete(connection, topic)
        assert create(connection, topic) == 0
        produce(broker, topic)
        assert end_offset(connection, topic) == 1


def test_a_topic_made_again_has_a_new_id_and_is_empty(broker: BrokerProcess, topic: str) -> None:
    with RawConnection(broker.port) as connection:
        assert create(connection, topic) == 0
        produce(broker, topic)
        before = described(connection, topic)
        assert delete(connection, topic) == 0
        assert described(connection, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert create(connection, topic) == 0
        after = described(connection, topic)
        assert before.topic_id != after.topic_id
        assert end_offset(connection, topic) == 0


def test_a_fetch_that_waits_is_answered_when_its_topic_is_deleted(broker: BrokerProcess, topic: str) -> None:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=10 * 60 * 1000,  # longer than the test may take: only the deletion can answer it
        min_bytes=1,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])],
    )
    with RawConnection(broker.port) as connection, RawConnection(broker.port) as reader:
        assert create(connection, topic) == 0
        reader.send(ApiKey.FETCH, 11, fetch.encode_request(request, 11))
        assert delete(connection, topic) == 0
        body = reader.receive()
        assert body is not None
        answer, _ = fetch.decode_response(body, 4, 11)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_their_ids_and_configs_survive_a_crash() -> None:
    with PenstockPeer() as peer:
        admin = AdminClient({"bootstrap.servers": peer.bootstrap})
        wanted = [NewTopic("kept", 3, config={"retention.ms": "12345"}), NewTopic("gone")]
        assert set(done(admin.create_topics(wanted)).values()) == {None}
        assert done(admin.delete_topics(["gone"])) == {"gone": None}
        with RawConnection(peer.port) as connection:
            before = described(connection, "kept")
        peer.kill()
        peer.start()
        with RawConnection(peer.port) as connection:
            after = described(connection, "kept")
            assert (after.topic_id, len(after.partitions)) == (before.topic_id, 3)
            assert described(connection, "gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert create(connection, "kept") == ErrorCode.TOPIC_ALREADY_EXISTS
        produce(peer, "kept")
