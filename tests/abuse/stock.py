"""A broker that has much to tell: topics with a record in each partition, groups with a member and offsets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.abuse.asked import PARTITIONS, Stock
from tests.integration.raw import RawClient, make_batch, wait_until

from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, join_group, offset_commit, produce, sync_group
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest

_AT_ONCE = 50
_SESSION_MS = 1_800_000  # nobody sends heartbeats
_COMMITTED_TOPICS = 10


def stocked(process: BrokerProcess, topics: int, groups: int) -> Stock:
    """Also with topics and groups, a tenth of the others, that may be changed."""
    names = [f"topic-{number}" for number in range(topics)]
    spare = [f"spare-{number}" for number in range(topics // 10)]
    group_ids = [f"group-{number}" for number in range(groups)]
    with RawClient(process.port) as client:
        for some in _portions(names + spare):
            _create(client, some)
        for some in _portions(names):
            _write(client, some)
        asked = FindCoordinatorRequest(key="g")
        wait_until(
            lambda: client.call(ApiKey.FIND_COORDINATOR, 3, asked).error_code == 0, "groups are served"
        )
        members: dict[str, str] = {}
        for some in _portions(group_ids):
            members |= _join(client, some)
        for some in _portions([*group_ids, *(f"committing-{number}" for number in range(groups // 10))]):
            _commit(client, some, members, names[:_COMMITTED_TOPICS])
    return Stock(names, group_ids, spare, members, str(process.data_dir))


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), _AT_ONCE):
        yield names[first : first + _AT_ONCE]


def _calls(client: RawClient, key: int, version: int, requests: Iterable[object]) -> list[Any]:
    """All are sent at once."""
    sent = [client.frame(key, version, request) for request in requests]
    client.send_bytes(b"".join(sent))
    return [client.receive() for _ in sent]


def _create(client: RawClient, names: Sequence[str]) -> None:
    wanted = [
        create_topics.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        for name in names
    ]
    request = create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=60_000)
    made = client.call(ApiKey.CREATE_TOPICS, 5, request).topics
    assert {topic.error_code for topic in made} == {0}


def _write(client: RawClient, names: Sequence[str]) -> None:
    batch = bytes(make_batch([b"stock"]))
    partitions = [produce.PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    topics = [produce.TopicProduceData(name=name, partition_data=partitions) for name in names]
    request = produce.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)
    answers = client.call(ApiKey.PRODUCE, 9, request).responses
    assert {each.error_code for answer in answers for each in answer.partition_responses} == {0}


def _join(client: RawClient, groups: Sequence[str]) -> dict[str, str]:
    """The member of each, which is also its leader and has been given all."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"m" * 100)
    joined = _calls(
        client,
        ApiKey.JOIN_GROUP,
        3,
        (
            join_group.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
            for group in groups
        ),
    )
    members = {group: answer.member_id for group, answer in zip(groups, joined, strict=True)}
    synced = _calls(
        client,
        ApiKey.SYNC_GROUP,
        3,
        (
            sync_group.SyncGroupRequest(
                group_id=group,
                generation_id=1,
                member_id=member,
                assignments=[sync_group.SyncGroupRequestAssignment(member_id=member, assignment=b"a" * 100)],
            )
            for group, member in members.items()
        ),
    )
    assert {answer.error_code for answer in [*joined, *synced]} == {0}
    return members


def _commit(
    client: RawClient, groups: Sequence[str], members: Mapping[str, str], names: Sequence[str]
) -> None:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(PARTITIONS)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
    answers = _calls(
        client,
        ApiKey.OFFSET_COMMIT,
        8,
        (
            offset_commit.OffsetCommitRequest(
                group_id=group,
                member_id=members.get(group, ""),
                generation_id_or_member_epoch=1 if group in members else -1,
                topics=topics,
            )
            for group in groups
        ),
    )
    assert {each.error_code for answer in answers for each in answer.topics[0].partitions} == {0}
