"""OffsetCommit without detours, for the kind that consumers send over and over: no generic decoder, one object to wait.

Whatever is not that kind (several topics, old versions, an unknown partition, damage) goes the long way, through
`handlers.offset_commit`, which also says what is wrong with it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.hot import Asker, Reply
from penstock.groups.offsets.commit import NO_RETENTION, Committer
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka import offset_commit as codec

# What the dispatcher is told when the request was taken care of but has no answer yet.
_ANSWER_FOLLOWS: list[object] = []
# Larger ones are not of this kind anyway.
_REQUEST_BYTES_MAX = 8 * 1024
# Consumers times partitions that are remembered; all are forgotten when there are more.
_KNOWN_MAX = 10_000


class CommitReply(PendingReply):
    """A `PendingReply` that goes straight to the connection, in its place in the row of responses."""

    __slots__ = ("_correlation_id", "_partitions", "_reply", "_topic", "_version")

    def __init__(
        self, reply: Reply, correlation_id: int, version: int, topic: bytes, partitions: Sequence[int]
    ) -> None:
        self.is_there = False
        self.refusal = _refusal
        self._reply = reply
        self._correlation_id = correlation_id
        self._version = version
        self._topic = topic
        self._partitions = partitions

    def fill(self, answer: Any) -> None:
        if self.is_there:
            return
        self.is_there = True
        codes = answer if isinstance(answer, list) else [answer] * len(self._partitions)
        response = codec.encode_single(
            self._correlation_id, self._version, self._topic, self._partitions, codes
        )
        self._reply.send([response])


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


class _Known(NamedTuple):
    """What the first part of a request means, as long as no topic changes."""

    by: Committer
    wanted: bytes
    name: str
    topic_id: bytes
    partition: int


class CommitPath:
    def __init__(self, services: Services) -> None:
        self._commit = services.group_offsets.commit
        self._image = services.image  # one object for as long as the broker runs, changed in place
        self._known: dict[tuple[int, bytes], _Known] = {}
        self._known_at = -1  # after how many changes of the image `_known` holds

    def commit(
        self, asker: Asker, frame: memoryview, position: int, version: int, correlation_id: int
    ) -> list[object] | None:
        """None leaves the request to its handler."""
        if len(frame) > _REQUEST_BYTES_MAX:
            return None
        data = bytes(frame)
        last = codec.split_last(data, position)
        if last is not None and self._image.changes == self._known_at:
            first, offset, leader_epoch, metadata = last
            known = self._known.get((version, first))
            if known is not None:
                by, wanted, name, topic_id, partition = known
                later = CommitReply(asker.defer(), correlation_id, version, wanted, (partition,))
                entry = (name, topic_id, partition, offset, leader_epoch, metadata)
                self._commit(by, [entry], NO_RETENTION, later)
                return _ANSWER_FOLLOWS
        request = codec.decode_single(data, position, version)
        if request is None:
            return None
        return self._commit_decoded(asker, request, version, correlation_id, last[0] if last else None)

    def _commit_decoded(
        self, asker: Asker, request: codec.OneTopic, version: int, correlation_id: int, first: bytes | None
    ) -> list[object] | None:
        image = self._image
        wanted = request.topic
        if version >= codec.TOPIC_IDS_SINCE:
            topic = image.topics_by_id.get(wanted)
        else:
            topic = image.topics.get(str(wanted, "utf-8", "replace"))
        if topic is None:
            return None
        name, topic_id, count = topic.name, topic.id, len(topic.partitions)
        numbers = [offset[0] for offset in request.offsets]
        if min(numbers) < 0 or max(numbers) >= count:
            return None
        by = Committer(request.group, request.member, request.instance, request.generation, version)
        # Metadata may look like the end of a request without any: then the first part is another one.
        if first is not None and len(numbers) == 1 and not request.offsets[0][3]:
            self._remember((version, first), _Known(by, wanted, name, topic_id, numbers[0]))
        later = CommitReply(asker.defer(), correlation_id, version, wanted, numbers)
        self._commit(by, [(name, topic_id, *offset) for offset in request.offsets], NO_RETENTION, later)
        return _ANSWER_FOLLOWS

    def _remember(self, first: tuple[int, bytes], known: _Known) -> None:
        if self._known_at != self._image.changes or len(self._known) >= _KNOWN_MAX:
            self._known_at = self._image.changes
            self._known.clear()
        self._known[first] = known
