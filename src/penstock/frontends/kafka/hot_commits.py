"""OffsetCommit without detours, for the kind that consumers send over and over: no generic decoder, one object to wait.

Whatever is not that kind (several topics, old versions, an unknown partition, damage) goes the long way, through
`handlers.offset_commit`, which also says what is wrong with it.
"""

from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.hot import Asker, Reply
from penstock.groups.offsets.commit import NO_RETENTION, Committer
from penstock.services.coordinator.later import Later
from penstock.services.services import Services
from penstock.wire.kafka import offset_commit as codec

# What the dispatcher is told when the request was taken care of but has no answer yet.
_ANSWER_FOLLOWS: list[object] = []
# Larger ones are not of this kind anyway.
_REQUEST_BYTES_MAX = 8 * 1024


class CommitReply(Later):
    """A `Later` that goes straight to the connection, in its place in the row of responses."""

    __slots__ = ("_correlation_id", "_offsets", "_reply", "_topic", "_version")

    def __init__(
        self, reply: Reply, correlation_id: int, version: int, topic: bytes, offsets: list[codec.Offset]
    ) -> None:
        self.is_there = False
        self.refusal = _refusal
        self._reply = reply
        self._correlation_id = correlation_id
        self._version = version
        self._topic = topic
        self._offsets = offsets

    def fill(self, answer: Any) -> None:
        if self.is_there:
            return
        self.is_there = True
        codes = answer if isinstance(answer, list) else [answer] * len(self._offsets)
        response = codec.encode_single(self._correlation_id, self._version, self._topic, self._offsets, codes)
        self._reply.send([response])


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


class CommitPath:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._commit = services.group_offsets.commit

    def commit(
        self, asker: Asker, frame: memoryview, position: int, version: int, correlation_id: int
    ) -> list[object] | None:
        """None leaves the request to its handler."""
        if len(frame) > _REQUEST_BYTES_MAX:
            return None
        request = codec.decode_single(bytes(frame), position, version)
        if request is None:
            return None
        group, generation, member, instance, wanted, offsets = request
        image = self._services.image
        if version >= codec.TOPIC_IDS_SINCE:
            topic = image.topics_by_id.get(wanted)
        else:
            topic = image.topics.get(str(wanted, "utf-8", "replace"))
        if topic is None:
            return None
        name, count = topic.name, len(topic.partitions)
        entries = []
        for number, offset, leader_epoch, metadata in offsets:
            if not 0 <= number < count:
                return None
            entries.append((name, number, offset, leader_epoch, metadata))
        later = CommitReply(asker.defer(), correlation_id, version, wanted, offsets)
        self._commit(Committer(group, member, instance, generation, version), entries, NO_RETENTION, later)
        return _ANSWER_FOLLOWS
