"""OffsetFetch (9), versions 1-10: where groups go on reading.

v2 asks for all topics with null and has an error for the whole; v5 adds leader epochs; v6 is flexible; v7 asks for
offsets that no transaction can still change (there are none that could); v8 asks for many groups at once, v9 in a
member's name, v10 with topic ids in place of names. A partition without a committed offset is answered with -1.
"""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import partitions_without_repeats, without_repeats
from penstock.groups.offsets.table import OffsetTable
from penstock.services.coordinator.later import Gathered, Later
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
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
_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10
_NO_OFFSET = -1

# (partition, offset, leader epoch, metadata, error)
Found = tuple[int, int, int, str, ErrorCode]
# Of each topic its name, its id and what was found of it.
Topics = list[tuple[str, bytes, list[Found]]]


@api(
    ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    portions=(("topics", "partition_indexes"), ("groups", "topics", "partition_indexes")),
)
def handle(services: Services, request: OffsetFetchRequest, call: Call) -> Later:
    if call.version >= _MANY_GROUPS_SINCE:
        return _many(services, request, call.version)
    named = None if request.topics is None else [(one.name, one.partition_indexes) for one in request.topics]
    later = Later(_refusal, partial(_render_single, request, call.version))
    services.group_offsets.fetch(request.group_id, _chooser(named), later)
    return later


def _many(services: Services, request: OffsetFetchRequest, version: int) -> Later:
    whole = Later(_refusal, lambda groups: OffsetFetchResponse(groups=groups))
    groups = without_repeats(request.groups, lambda group: group.group_id)
    Gathered(whole, [_one_group(services, group, version) for group in groups])
    return whole


def _one_group(services: Services, group: OffsetFetchRequestGroup, version: int) -> Later:
    by_id = version >= _TOPIC_IDS_SINCE
    choose: Callable[[OffsetTable], Topics]
    if by_id:
        choose = partial(_by_id, services.image, group)
    else:
        choose = _chooser(
            None if group.topics is None else [(one.name, one.partition_indexes) for one in group.topics]
        )
    later = Later(_refusal, partial(_render_group, group.group_id))
    services.group_offsets.fetch(group.group_id, choose, later)
    return later


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


# -- choosing -----------------------------------------------------------------------------------------------


def _chooser(named: Sequence[tuple[str, Sequence[int]]] | None) -> Callable[[OffsetTable], Topics]:
    return _everything if named is None else partial(_by_name, named)


def _everything(offsets: OffsetTable) -> Topics:
    return [
        (topic, b"", [_found(offsets, topic, p) for p in parts]) for topic, parts in offsets.topics.items()
    ]


def _by_name(named: Sequence[tuple[str, Sequence[int]]], offsets: OffsetTable) -> Topics:
    wanted = partitions_without_repeats(named)
    return [(topic, b"", [_found(offsets, topic, one) for one in parts]) for topic, parts in wanted]


def _by_id(image: ClusterImage, group: OffsetFetchRequestGroup, offsets: OffsetTable) -> Topics:
    topics: Topics = []
    if group.topics is None:
        for name, _, found in _everything(offsets):
            known = image.topics.get(name)
            if known is not None:  # one that was deleted has no id to be told by
                topics.append((name, known.id, found))
        return topics
    named = [(one.topic_id, one.partition_indexes) for one in group.topics]
    for topic_id, partitions in partitions_without_repeats(named):
        known = image.topics_by_id.get(topic_id)
        if known is None:
            refused = [(one, _NO_OFFSET, _NO_OFFSET, "", ErrorCode.UNKNOWN_TOPIC_ID) for one in partitions]
            topics.append(("", topic_id, refused))
        else:
            found = [_found(offsets, known.name, one) for one in partitions]
            topics.append((known.name, topic_id, found))
    return topics


def _found(offsets: OffsetTable, topic: str, partition: int) -> Found:
    value = offsets.get(topic, partition)
    if value is None:
        return partition, _NO_OFFSET, _NO_OFFSET, "", ErrorCode.NONE
    return partition, value.offset, value.leader_epoch, value.metadata, ErrorCode.NONE


# -- rendering ----------------------------------------------------------------------------------------------


def _render_group(group_id: str, found: ErrorCode | Topics) -> OffsetFetchResponseGroup:
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


def _render_single(
    request: OffsetFetchRequest, version: int, found: ErrorCode | Topics
) -> OffsetFetchResponse:
    error = ErrorCode.NONE
    if isinstance(found, ErrorCode):
        error = found
        found = []
        if version < _WHOLE_ERROR_SINCE:  # no place for it but beside every partition
            found = [
                (one.name, b"", [(n, _NO_OFFSET, _NO_OFFSET, "", error) for n in one.partition_indexes])
                for one in request.topics or ()
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
