"""Incremental fetch sessions (KIP-227): a client names its partitions once, later requests only what changed.

    session id  epoch   meaning
    0           -1      no session: a full fetch, nothing remembered
    any         0       full fetch that starts a session (replacing `id`)
    id          n > 0   the n-th incremental request of session `id`
    id          -1      close it, and answer as a full fetch

The cache is bounded, by sessions and by partitions; when it is full, the session least recently used makes room once
it has been idle for a while, otherwise the client simply gets no session and goes on with full fetches. Followers come
first: consumers' sessions make room for theirs at once. Each has one session, for it may never hear of one that it
has begun.
"""

import random
from dataclasses import dataclass, field

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import FETCH_SESSION_CHANGES_MAX, FETCH_SESSION_PARTITIONS_MAX
from penstock.services.fetching.found import Found, FoundInTopic
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EPOCH_MAX = 0x7FFFFFFF
# A session may be pushed out when it was not used for this long (Kafka's min.incremental.fetch.session.eviction.ms).
_EVICTION_IDLE_SECONDS = 120.0

Key = tuple[bytes, int]


@dataclass(slots=True)
class _Cached:
    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


Remembered = dict[Key, _Cached]


def remembered(request: FetchRequest) -> Remembered:
    """What a session that begins with it would remember. Of a large request; it takes long."""
    return {
        (topic, wanted.partition): _Cached(wanted)
        for topic, partitions in request.topics
        for wanted in partitions
    }


@dataclass(slots=True)
class FetchSession:
    id: int
    epoch: int
    by_id: bool  # topics named by id (v13 and later) or by name: a session cannot change between the two
    last_used: float
    replica: int  # the follower it belongs to; negative for a consumer's
    partitions: Remembered = field(default_factory=dict)

    def update(self, request: FetchRequest) -> None:
        for topic, numbers in request.forgotten:
            for number in numbers:
                self.partitions.pop((topic, number), None)
        for topic, partitions in request.topics:
            for wanted in partitions:
                cached = self.partitions.get((topic, wanted.partition))
                if cached is None:
                    self.partitions[topic, wanted.partition] = _Cached(wanted)
                else:
                    cached.wanted = wanted

    def topics(self) -> list[tuple[bytes, list[FetchPartition]]]:
        """Everything the session covers, grouped by topic in the order it was named."""
        grouped: dict[bytes, list[FetchPartition]] = {}
        for (topic, _), cached in self.partitions.items():
            grouped.setdefault(topic, []).append(cached.wanted)
        return list(grouped.items())

    def told_all(self, topics: list[FoundInTopic]) -> list[FoundInTopic]:
        """To a full fetch: all of it, of which the session takes note."""
        for topic, answers in topics:
            for answer in answers:
                self.changed(topic, answer)
        return topics

    def told_changes(self, topics: list[FoundInTopic]) -> list[FoundInTopic]:
        """To an incremental one, which leaves out what has not changed."""
        kept: list[FoundInTopic] = []
        for topic, answers in topics:
            changed = [answer for answer in answers if self.changed(topic, answer)]
            if changed:
                kept.append((topic, changed))
        return kept

    def changed(self, topic: bytes, answer: Found) -> bool:
        """Whether an incremental answer must mention this partition; remembers what it said."""
        cached = self.partitions.get((topic, answer.partition))
        if cached is None:
            return True
        moved = (
            answer.high_watermark != cached.high_watermark
            or answer.log_start_offset != cached.log_start_offset
        )
        cached.high_watermark = answer.high_watermark
        cached.log_start_offset = answer.log_start_offset
        if answer.size:
            # Rotate, so that partitions behind a busy one get their turn when the byte limit cuts answers short.
            del self.partitions[topic, answer.partition]
            self.partitions[topic, answer.partition] = cached
        if answer.diverging is not None:
            # Nobody takes note of them beside a divergence: to be told again.
            cached.high_watermark = cached.log_start_offset = -1
            return True
        return moved or answer.size > 0 or answer.error != 0 or answer.preferred_replica >= 0

    def is_news(self, topic: bytes, answer: Found) -> bool:
        """Whether it has another high watermark than was last told."""
        cached = self.partitions.get((topic, answer.partition))
        return cached is not None and answer.high_watermark > cached.high_watermark


def _changes_too_much(request: FetchRequest, remembered: Remembered) -> bool:
    left = FETCH_SESSION_CHANGES_MAX - len(remembered)
    for _, numbers in request.forgotten:
        if left < 0:
            break
        left -= max(len(numbers), 1)
    return left < 0


class FetchSessions:
    def __init__(self, slots_max: int, rng: random.Random) -> None:
        self._slots_max = slots_max
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._by_replica: dict[int, int] = {}  # the sessions of followers
        self._partitions = 0  # that they cover together

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> int:
        """How many it covers; none where there is no such session."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def find(
        self, request: FetchRequest, now: float, *, by_id: bool, remembered: Remembered | None = None
    ) -> FetchSession | None:
        """The session this request belongs to, brought up to date; None for a request without one.

        `remembered` comes with a large request: one that begins a session with it takes no longer than others.
        """
        if request.session_epoch == FINAL_EPOCH:
            if request.session_id != NO_SESSION:
                self._drop(request.session_id)
            return None
        if request.session_epoch == INITIAL_EPOCH:
            self._drop(request.session_id)
            return self._start(request, now, by_id=by_id, remembered=remembered)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if remembered is not None and _changes_too_much(request, remembered):
            self._drop(session.id)  # the client starts over, with a full fetch
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        partitions_before = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - partitions_before
        if self._partitions > FETCH_SESSION_PARTITIONS_MAX:
            self._drop(session.id)  # the client starts over, with full fetches if there is still no room
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used = now
        self._sessions[session.id] = self._sessions.pop(session.id)
        return session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            if session.replica >= 0:
                del self._by_replica[session.replica]

    def _start(
        self, request: FetchRequest, now: float, *, by_id: bool, remembered: Remembered | None
    ) -> FetchSession | None:
        wanted = sum(len(partitions) for _, partitions in request.topics)
        replica = request.replica_id
        if replica in self._by_replica:
            self._drop(self._by_replica[replica])
        if not self._make_room(wanted, now, is_replica=replica >= 0):
            return None
        session_id = self._rng.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session = FetchSession(session_id, 1, by_id, now, replica)
        if remembered is None:
            session.update(request)
        else:
            session.partitions = remembered
        if replica >= 0:
            self._by_replica[replica] = session_id
        self._sessions[session_id] = session
        self._partitions += len(session.partitions)
        return session

    def _make_room(self, partitions: int, now: float, *, is_replica: bool) -> bool:
        while (
            len(self._sessions) >= self._slots_max
            or self._partitions + partitions > FETCH_SESSION_PARTITIONS_MAX
        ):
            given_up = self._dispensable(now, is_replica=is_replica)
            if given_up is None:
                return False
            self._drop(given_up)
        return True

    def _dispensable(self, now: float, *, is_replica: bool) -> int | None:
        """Whose session may go: one that was not used for long, and for a follower's any consumer's."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.last_used >= _EVICTION_IDLE_SECONDS:
            return None if oldest is None else oldest.id
        if not is_replica:
            return None
        return next((session.id for session in self._sessions.values() if session.replica < 0), None)
