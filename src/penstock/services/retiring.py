"""Retiring, at the partition's leader: what it answers the controller, and what may be asked of a topic at all.

What the controller asks, and what each answer promises, is drawn in `wire.peers.retirement`.
"""

from collections.abc import Mapping

from penstock.config.settings import ConfigError
from penstock.config.topic import TopicConfig
from penstock.controller.retiring import RETIRE_TO, live_count, retired_at
from penstock.coordination.image import Topic as TopicImage
from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.records.relay import RelayKind
from penstock.replication.partition import Partition
from penstock.replication.retirement import (
    UNKNOWN,
    Close,
    ask_anew,
    freeze,
    is_drained,
    is_retired,
    left_to_move,
    left_to_read,
    retirement_of,
)
from penstock.replication.table import PartitionTable, Topic
from penstock.services.list_offsets import OffsetAnswer, check_exact_epoch
from penstock.wire.peers.retirement import Closed, Frozen, Question, RetirementAnswer, Seen

NOT_RETIRED = -1


class RetiringService:
    def __init__(self, clock: Clock, table: PartitionTable) -> None:
        self._clock = clock
        self._table = table

    def answer(self, topic_id: bytes, index: int, leader_epoch: int, question: Question) -> RetirementAnswer:
        """ApiError when it is not led here under that epoch, or cannot tell yet."""
        topic = self._table.by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._table.find(topic.name, index)
        check_exact_epoch(partition, leader_epoch)
        if question is Question.FREEZE:
            return self._freeze(topic, partition)
        _check_retired(partition)
        retirement = retirement_of(partition)
        if retirement.moved == UNKNOWN:
            # Taken for written to, its grace would begin anew with every election.
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "how much of it is moved is not known yet")
        drained, now_ms = is_drained(partition), self._clock.now_ms()
        # What is still to be moved counts as if it was written now.
        written_ms = retirement.written_ms if drained else now_ms
        # A log that lost its end, and was not written to since, ends below the limit: readers have something left.
        is_over = drained and left_to_read(partition) >= retirement.limit
        if question is Question.CLOSE and is_over and now_ms - written_ms >= topic.config.retire_grace_ms:
            return _close(partition)
        return Seen(left_to_read(partition), written_ms)

    def _freeze(self, topic: Topic, partition: Partition) -> Frozen:
        if topic.config.retire_to is None or partition.index < topic.config.retire_to:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "nobody wishes so, as far as is known here")
        return Frozen(freeze(partition, self._clock.now_ms()))

    def left(self, topic: str, index: int, leader_epoch: int) -> OffsetAnswer:
        """For whoever wants to know: how many offsets are left to move, and (as the time) into which partition."""
        partition = self._table.find(topic, index)
        check_exact_epoch(partition, leader_epoch)
        _check_retired(partition)
        routes = self._table.routes.out_of(partition.topic_id, index)
        into = [route.target_partition for route in routes if route.kind == RelayKind.RETIRED]
        if not into:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "where it goes is not known here yet")
        return OffsetAnswer(into[0], left_to_move(partition), partition.leader_epoch)


def _check_retired(partition: Partition) -> None:
    if not is_retired(partition):
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "it was not retired, as far as is known here")


def _close(partition: Partition) -> Closed:
    retirement = retirement_of(partition)
    if retirement.close is not Close.CONFIRMED:
        # A target that lost its end while nobody wrote would be missed with the last copy.
        ask_anew(partition, Close.ASKED)
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, "the target is asked once more whether it has all")
    # What its end is now stays so: nobody can write any more.
    retirement.closed = True
    return Closed(partition.log.end_offset)


def limit_of(topic: TopicImage | None, index: int) -> OffsetAnswer:
    """What the metadata alone tells of a number, also of one that was removed; ApiError where it tells nothing."""
    before = None if topic is None else topic.removed.get(index)
    if topic is not None and 0 <= index < len(topic.partitions):
        is_retired_now = topic.partitions[index].retirement is not None
        limit = retired_at(topic, index) if is_retired_now else NOT_RETIRED
        return OffsetAnswer(0 if before is None else before.end, limit, -1)
    if before is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return OffsetAnswer(before.end, before.limit, -1)


def check_retirement(
    topic: TopicImage,
    before: Mapping[str, str],
    after: dict[str, str],
    config: TopicConfig,
    *,
    replaced: bool,
) -> None:
    """ApiError where a change of settings would retire what cannot be, or bring back what is being retired."""
    known, wanted = before.get(RETIRE_TO), after.get(RETIRE_TO)
    if known is not None and wanted is None and replaced:
        after[RETIRE_TO] = wanted = known  # whoever replaces all settings does not mean this one
    if known is not None and wanted is None:
        raise _refused(
            f"partitions of '{topic.name}' are being retired, which cannot be taken back: what was written to them "
            "since then is in other partitions already"
        )
    if wanted is None:
        return
    if config.compacts:
        raise _refused(
            f"'{topic.name}' compacts, so the last value of a key would stay in a partition that is no longer its "
            "home: make a topic with fewer partitions and copy it there"
        )
    if wanted == known:
        return
    if topic.name in INTERNAL_TOPICS:
        raise _refused(
            f"'{topic.name}' is the broker's own: what belongs where follows from its partition count"
        )
    live = live_count(topic)
    if int(wanted) >= live:
        raise _refused(
            f"'{topic.name}' has {live} partition(s) that are not being retired: name fewer, or add partitions "
            "with `penstock topic alter --partitions`"
        )


def refuse_retirement_of_new_topic(config: TopicConfig) -> None:
    if config.retire_to is not None:
        raise _refused("a topic that is being created has nothing to retire: leave it out")


def check_growth(topic: TopicImage) -> None:
    """ApiError where a count is for good, or while the numbers that new partitions would get are still in use."""
    if topic.name in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"'{topic.name}' is the broker's own: what belongs where follows from its partition count, so that with "
            "more partitions what is stored would not be found any more.",
        )
    if RETIRE_TO in topic.configs:
        live, count = live_count(topic), len(topic.partitions)
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Partitions {live} to {count - 1} of '{topic.name}' are being retired, and new ones would need their "
            "numbers: wait until `penstock topic describe` no longer shows penstock.retire.to, or lower "
            "retention.ms and penstock.retire.grace.ms of the topic to make it sooner.",
        )


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"Invalid value for configuration {RETIRE_TO}: {reason}")
