"""OffsetFetch (9), versions 1-10: where groups go on reading.

v2 asks for all topics with null and has an error for the whole; v5 adds leader epochs; v6 is flexible; v7 may ask for
offsets that no transaction can still change (others are answered with UNSTABLE_OFFSET_COMMIT); v8 asks for many groups
at once, v9 in a member's name, v10 with topic ids in place of names. A partition without a committed offset is answered
with -1.

A group is answered from one state, however long that takes: a client that is told of an error and of offsets, or of
offsets before and after its group was loaded, goes on reading in the wrong place.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.coordination.image import ClusterImage, Topic
from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_OFFSET_BYTES, LARGE_ANSWER_ENTRIES, TURN_ITEMS_MAX
from penstock.core.turns import give_way
from penstock.frontends.kafka.offset_answers import (
    TopicsOf,
    chooser,
    chosen_by_id,
    render_group,
    render_single,
)
from penstock.frontends.kafka.pace import Pace
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import without_repeats
from penstock.groups.offsets.table import OffsetTable
from penstock.services.coordinator.pending_reply import Gathered, PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_MANY_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10

Fetch = Callable[[str, Callable[[OffsetTable], Any], PendingReply], None]


async def snapshot(
    services: Services, request: OffsetFetchRequest, call: Call, pace: Pace
) -> Callable[[OffsetFetchRequest], PendingReply]:
    """Reads what is asked of each group in one turn of the loop."""
    taken = _Snapshot(services, require_stable=request.require_stable)
    if call.version < _MANY_GROUPS_SINCE:
        named = (
            None
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )
        taken.take(request.group_id, named)
    else:
        request.groups = await _each_group_once(request.groups)
        read = 0
        for group in request.groups:
            read += taken.take_group(group, has_ids=call.version >= _TOPIC_IDS_SINCE)
            if read >= TURN_ITEMS_MAX:
                read = 0
                await pace.give_way()
    pace.hold(taken.size_bytes)
    await taken.complete(pace)
    taken.name_everything(request, call.version)
    return lambda part: _answer(part, call.version, taken.fetch, taken.topics_of, services.image)


def asks_for_everything(services: Services, request: OffsetFetchRequest, call: Call) -> bool:
    """Of groups that have committed much."""
    if call.version < _MANY_GROUPS_SINCE:
        groups = [request.group_id] if request.topics is None else []
    else:
        groups = [group.group_id for group in request.groups if group.topics is None]
    return bool(groups) and services.group_offsets.have_more_than(LARGE_ANSWER_ENTRIES, groups)


@api(
    ApiKey.OFFSET_FETCH,
    versions=(1, 10),
    portions=(("topics", "partition_indexes"), ("groups", "topics", "partition_indexes")),
    snapshot=snapshot,
    asks_for_much=asks_for_everything,
)
def handle(services: Services, request: OffsetFetchRequest, call: Call) -> PendingReply:
    image = services.image
    fetch = partial(services.group_offsets.fetch, require_stable=request.require_stable)
    return _answer(request, call.version, fetch, lambda _: image.topics_by_id.get, image)


def _answer(
    request: OffsetFetchRequest, version: int, fetch: Fetch, topics_of: TopicsOf, image: ClusterImage
) -> PendingReply:
    if version < _MANY_GROUPS_SINCE:
        named = (
            None
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )
        later = PendingReply(_refusal, partial(render_single, request, version))
        fetch(request.group_id, chooser(named), later)
        return later
    parts = []
    for group in without_repeats(request.groups, lambda group: group.group_id):
        by_id = version >= _TOPIC_IDS_SINCE
        choose = partial(chosen_by_id, image, topics_of, group) if by_id else chooser(_named(group))
        later = PendingReply(_refusal, partial(render_group, group.group_id))
        fetch(group.group_id, choose, later)
        parts.append(later)
    whole = PendingReply(_refusal, lambda groups: OffsetFetchResponse(groups=groups))
    Gathered(whole, parts)
    return whole


def _named(group: OffsetFetchRequestGroup) -> list[tuple[str, Sequence[int]]] | None:
    return None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


# -- one state ----------------------------------------------------------------------------------------------


async def _each_group_once(groups: Sequence[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    once: dict[str, OffsetFetchRequestGroup] = {}
    for number, group in enumerate(groups):
        await give_way(number)
        first = once.setdefault(group.group_id, group)
        if first is group or first.topics is None:
            continue
        if group.topics is None:  # that is everything
            first.topics = None
        else:
            first.topics.extend(group.topics)
    return list(once.values())


class _Snapshot:
    """Offsets of groups, each as it was when it was taken, and what ids and names meant then."""

    def __init__(self, services: Services, *, require_stable: bool) -> None:
        self._services = services
        self._fetch = partial(services.group_offsets.fetch, require_stable=require_stable)
        self._groups: dict[str, PendingReply] = {}
        self._found: dict[str, ErrorCode | OffsetTable] = {}
        self._by_id: dict[str, dict[bytes, Topic | None]] = defaultdict(dict)  # of each group
        self._by_name: dict[str, dict[str, Topic | None]] = {}  # of groups that are asked for everything
        self.size_bytes = 0

    def take_group(self, group: OffsetFetchRequestGroup, *, has_ids: bool) -> int:
        """How many entries were looked at."""
        if group.topics is None:
            return self.take(group.group_id, None)
        if not has_ids:
            return self.take(group.group_id, _named(group))
        wanted: list[tuple[str, Sequence[int]]] = []
        by_id = self._by_id[group.group_id]
        for topic in group.topics:
            known = by_id[topic.topic_id] = self._services.image.topics_by_id.get(topic.topic_id)
            if known is not None:
                wanted.append((known.name, topic.partition_indexes))
        return self.take(group.group_id, wanted)

    def take(self, group_id: str, wanted: Sequence[tuple[str, Sequence[int]]] | None) -> int:
        later = self._groups[group_id] = PendingReply(_refusal, lambda found: found)
        self._fetch(group_id, partial(self._copy, group_id, wanted), later)
        return 1 + sum(1 + len(partitions) for _, partitions in wanted or ())

    def _copy(
        self, group_id: str, wanted: Sequence[tuple[str, Sequence[int]]] | None, offsets: OffsetTable
    ) -> OffsetTable:
        copied = offsets.copy(wanted)
        if wanted is None:
            topics = self._services.image.topics
            self._by_name[group_id] = {name: topics.get(name) for name in copied.topics}
        self.size_bytes += len(copied) * GROUP_OFFSET_BYTES
        return copied

    async def complete(self, pace: Pace) -> None:
        whole = PendingReply(_refusal, lambda found: found)
        Gathered(whole, list(self._groups.values()))
        self._found = dict(zip(self._groups, await pace.wait(whole), strict=True))

    def name_everything(self, request: OffsetFetchRequest, version: int) -> None:
        """Where all topics are asked for, those that were found: each of them can be answered apart."""
        if version < _MANY_GROUPS_SINCE:
            if request.topics is None and (found := self._offsets_of(request.group_id)) is not None:
                request.topics = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=partitions)
                    for name, partitions in found
                ]
            return
        for group in request.groups:
            if group.topics is None and (found := self._offsets_of(group.group_id)) is not None:
                group.topics = [
                    OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=partitions)
                    for name, partitions in found
                    if (topic_id := self._id_of(group.group_id, name)) or version < _TOPIC_IDS_SINCE
                ]

    def _offsets_of(self, group_id: str) -> list[tuple[str, list[int]]] | None:
        found = self._found[group_id]
        if isinstance(found, ErrorCode):
            return None
        return [(name, list(partitions)) for name, partitions in found.topics.items() if partitions]

    def _id_of(self, group_id: str, name: str) -> bytes:
        """Nothing where it was deleted: it has no id to be told by."""
        topic = self._by_name[group_id][name]
        if topic is None:
            return b""
        self._by_id[group_id][topic.id] = topic
        return topic.id

    def topics_of(self, group_id: str) -> Callable[[bytes], Topic | None]:
        return self._by_id[group_id].__getitem__

    def fetch(self, group_id: str, chosen: Callable[[OffsetTable], Any], later: PendingReply) -> None:
        found = self._found[group_id]
        if isinstance(found, ErrorCode):
            later.refuse(found)
        else:
            later.fill(chosen(found))
