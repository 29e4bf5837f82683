"""The topic that is replayed into: made when it is missing, looked at when it is there."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.client.admin.admin import Admin
from penstock.client.raw import RawClient, TopicPartition, UnknownTopicError
from penstock.spark.pipelines.replaying.errors import TargetError
from penstock.spark.pipelines.replaying.tail import look

# Replayed records keep their old timestamps: with any other retention the broker may delete them right away. Nor may
# its defaults compact them: what is replayed is all that was archived.
CREATED_WITH = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
_RETENTION_DEFAULT_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class TargetOptions:
    topic: str
    create: bool = True
    partitions: int | None = None  # of a topic that is made; None: as many as the original had
    config: Mapping[str, str] | None = None
    append: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    created: bool
    partitions: int
    topic_id: uuid.UUID | None  # None: brokers do not tell it
    # Per partition the last original offset that is there already; -1: none.
    done: Mapping[int, int]


def prepare(
    client: RawClient,
    bootstrap: str,
    options: TargetOptions,
    *,
    original: str,
    partitions: int,
    wanted: Iterable[int],
    source: str,
    oldest_ms: int | None,
    now_ms: int,
    warn: Callable[[str], None],
) -> Target:
    """`partitions`: how many the original had; `wanted`: those that are replayed. TargetError says what is not fit."""
    topic = options.topic
    needed = max(wanted, default=-1) + 1
    created = False
    try:
        found = client.describe([topic])[topic]
        count = len(found.partitions)
    except UnknownTopicError:
        count = _create(bootstrap, options, original, partitions, needed)
        found = client.describe([topic])[topic]
        created = True
    if count < needed:
        raise TargetError(
            f"{topic} has {_count(count)}, but {original} has records in partition {needed - 1}: give it more with "
            f"`penstock topic alter {topic} --partitions {partitions}`, or replay into a new topic"
        )
    if created:
        return Target(created, count, found.topic_id, dict.fromkeys(range(count), -1))
    if count != partitions:
        warn(
            f"{topic} has {_count(count)} and {original} had {partitions}: records stay in the partition they were "
            "in, so keys are not where a producer would put them now"
        )
    _warn_of_settings(bootstrap, topic, oldest_ms, now_ms, warn)
    # A leader that was replaced would not have what was replayed already, and it would be written twice.
    client.hear_all([topic])
    done = {
        number: look(client, TopicPartition(topic, number), source, append=options.append).done
        for number in range(count)
    }
    return Target(created, count, found.topic_id, done)


def _create(bootstrap: str, options: TargetOptions, original: str, partitions: int, needed: int) -> int:
    topic = options.topic
    if not options.create:
        raise TargetError(f"there is no topic {topic}: make it, or leave --no-create away")
    count = options.partitions or partitions
    if count < needed:
        raise TargetError(
            f"--partitions {count} is too few: {original} has records in partition {needed - 1}, and each stays "
            f"in its partition; give {needed} or more"
        )
    Admin(bootstrap).create(topic, partitions=count, configs=CREATED_WITH | dict(options.config or {}))
    return count


def _warn_of_settings(
    bootstrap: str, topic: str, oldest_ms: int | None, now_ms: int, warn: Callable[[str], None]
) -> None:
    configs = Admin(bootstrap).describe(topic).configs or {}
    if configs.get("message.timestamp.type") == "LogAppendTime":
        warn(f"{topic} has message.timestamp.type=LogAppendTime: the records get the time of the replay")
    retention_ms = int(configs.get("retention.ms", _RETENTION_DEFAULT_MS))
    if retention_ms >= 0 and oldest_ms is not None and oldest_ms < now_ms - retention_ms:
        warn(
            f"{topic} keeps records for a time, and some that are replayed are older: they may be deleted at once; "
            f"`penstock topic alter {topic} --config retention.ms=-1` keeps them"
        )


def _count(partitions: int) -> str:
    return f"{partitions} partition" if partitions == 1 else f"{partitions} partitions"
