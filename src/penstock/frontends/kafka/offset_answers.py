"""What an answer to OffsetFetch says: offsets chosen out of those that a group has committed, by name or by id, and how
each version writes them down. From which state they are taken: `handlers.offset_fetch`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from penstock.coordination.image import ClusterImage, Topic
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.repeats import partitions_without_repeats
from penstock.groups.offsets.table import UNSTABLE, OffsetTable
from penstock.groups.records.offset_value import CommittedOffset
from penstock.wire.kafka.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_WHOLE_ERROR_SINCE = 2
_NO_OFFSET = -1

# (partition, offset, leader epoch, metadata, error)
Found = tuple[int, int, int, str, ErrorCode]
# Of each topic its name, its id and what was found of it.
Topics = list[tuple[str, bytes, list[Found]]]
# What ids mean to a group.
TopicsOf = Callable[[str], Callable[[bytes], Topic | None]]


# -- choosing -----------------------------------------------------------------------------------------------


def chooser(named: Sequence[tuple[str, Sequence[int]]] | None) -> Callable[[OffsetTable], Topics]:
    return _everything if named is None else partial(_by_name, named)


def _everything(offsets: OffsetTable) -> Topics:
    return [
        (topic, b"", [_found(committed, partition) for partition in committed])
        for topic in offsets.topics
        if (committed := offsets.listed(topic))
    ]


def _by_name(named: Sequence[tuple[str, Sequence[int]]], offsets: OffsetTable) -> Topics:
    wanted = partitions_without_repeats(named)
    found: Topics = []
    for topic, partitions in wanted:
        committed = offsets.of_topic(topic)
        found.append((topic, b"", [_found(committed, partition) for partition in partitions]))
    return found


def chosen_by_id(
    image: ClusterImage, topics_of: TopicsOf, group: OffsetFetchRequestGroup, offsets: OffsetTable
) -> Topics:
    topics: Topics = []
    if group.topics is None:
        for name, _, found in _everything(offsets):
            known = image.topics.get(name)
            if known is not None:  # one that was deleted has no id to be told by
                topics.append((name, known.id, found))
        return topics
    named = [(topic.topic_id, topic.partition_indexes) for topic in group.topics]
    topic_by_id = topics_of(group.group_id)
    for topic_id, partitions in partitions_without_repeats(named):
        known = topic_by_id(topic_id)
        if known is None:
            refused = [
                (partition, _NO_OFFSET, _NO_OFFSET, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for partition in partitions
            ]
            topics.append(("", topic_id, refused))
        else:
            committed = offsets.of_topic(known.name)
            found = [_found(committed, partition) for partition in partitions]
            topics.append((known.name, topic_id, found))
    return topics


def _found(committed: Mapping[int, CommittedOffset], partition: int) -> Found:
    value = committed.get(partition)
    if value is None:
        return partition, _NO_OFFSET, _NO_OFFSET, "", ErrorCode.NONE
    if value is UNSTABLE:
        return partition, _NO_OFFSET, _NO_OFFSET, "", ErrorCode.UNSTABLE_OFFSET_COMMIT
    return partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE


# -- rendering ----------------------------------------------------------------------------------------------


def render_group(group_id: str, found: ErrorCode | Topics) -> OffsetFetchResponseGroup:
    if isinstance(found, ErrorCode):
        return OffsetFetchResponseGroup(group_id=group_id, error_code=found)
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id or bytes(16),
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        metadata=metadata,
                        error_code=error,
                    )
                    for number, offset, epoch, metadata, error in partitions
                ],
            )
            for name, topic_id, partitions in found
        ],
    )


def render_single(
    request: OffsetFetchRequest, version: int, found: ErrorCode | Topics
) -> OffsetFetchResponse:
    error = ErrorCode.NONE
    if isinstance(found, ErrorCode):
        if version >= _WHOLE_ERROR_SINCE:
            error, found = found, []
        else:  # no place for it but beside every partition
            refused = found
            found = [
                (topic.name, b"", [(n, _NO_OFFSET, _NO_OFFSET, "", refused) for n in topic.partition_indexes])
                for topic in request.topics or ()
            ]
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        metadata=metadata,
                        error_code=code,
                    )
                    for number, offset, epoch, metadata, code in partitions
                ],
            )
            for name, _, partitions in found
        ],
    )
