"""A follower's side of an incremental fetch session (KIP-227): all partitions are named once, then only what changed.

What the leader has been told is known by the answers that came. Whenever one did not come, or nobody took it over, the
next request names everything again and replaces the session. A partition that rests is taken out of it: one that stays
counts as asked for, and a follower as caught up that only does not ask. One whose answer could not be taken over is
taken out and named anew at once: else its leader believes that we know its high watermark and log start.
"""

from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchTopic, ForgottenTopic

Key = tuple[bytes, int]

_NONE = 0
_FULL = 0
_EPOCH_MAX = 0x7FFFFFFF
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchPosition(NamedTuple):
    """What is asked for of a partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    max_bytes: int


class LeaderSession:
    def __init__(self) -> None:
        self.id = _NONE
        self.epoch = _FULL
        self._told: dict[Key, FetchPosition] = {}
        self._asked: dict[Key, FetchPosition] | None = None
        self._missed: set[Key] = set()

    def ask(self, wanted: dict[Key, FetchPosition]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What the next request names, beside `id` and `epoch`, so that it asks for all that is wanted."""
        self._asked = wanted
        told = self._told if self.epoch != _FULL else {}
        topics: dict[bytes, list[FetchPartition]] = {}
        for key, place in wanted.items():
            if told.get(key) != place or key in self._missed:
                topics.setdefault(key[0], []).append(_partition(key[1], place))
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in told:
            if (topic_id, index) not in wanted or (topic_id, index) in self._missed:
                forgotten.setdefault(topic_id, []).append(index)
        return (
            [FetchTopic(topic_id=topic_id, partitions=named) for topic_id, named in topics.items()],
            [ForgottenTopic(topic_id=topic_id, partitions=named) for topic_id, named in forgotten.items()],
        )

    def answered(self, session_id: int) -> None:
        """The answer came, under the session's number; 0 where the leader has no room for one."""
        asked, self._asked = self._asked, None
        self._missed.clear()
        self.id = session_id
        if asked is None or session_id == _NONE:
            self.epoch = _FULL
            return
        self._told = asked
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def missed(self, key: Key) -> None:
        """What the last answer said of it was not taken over."""
        self._missed.add(key)

    def begin_anew(self) -> None:
        """An answer was lost, or is not taken over: the leader may believe that we know what we do not."""
        self._asked = None
        self.epoch = _FULL


def _partition(index: int, place: FetchPosition) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=place.leader_epoch,
        fetch_offset=place.offset,
        last_fetched_epoch=place.last_epoch,
        log_start_offset=place.log_start,
        partition_max_bytes=place.max_bytes,
    )
