"""Every topic setting of Kafka 4.3, plus our own under `penstock.`; the table that docs and answers are made from."""

from penstock.config.settings import (
    LONG_MAX,
    Setting,
    SettingType,
    Synonym,
    Update,
    Validator,
    Value,
    at_least,
    between,
    by_name,
    level,
    list_of,
    one_of,
    throttled_replicas,
)
from penstock.core.archive_progress import ArchiveProgress

HOUR_MS = 60 * 60 * 1000
MINUTE_MS = 60 * 1000
DAY_MS = 24 * HOUR_MS
_PARTITION_DIGITS_MAX = 10

ACK_AFTER = one_of("auto", "written", "synced")
CLEANUP_POLICIES = list_of("compact", "delete")
COMPRESSIONS = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = one_of("CreateTime", "LogAppendTime")
GZIP_LEVELS = level(1, 9, default=-1)
LZ4_LEVELS = between(1, 17)
ZSTD_LEVELS = between(-131072, 22)
NO_TIERED_STORAGE = Validator(
    "false: the archive takes the place of tiered storage",
    lambda value: value is False,
    lambda name, value: (
        "Tiered Storage functionality is disabled in the broker. "
        "Topic cannot be configured with remote log storage."
    ),
)


def _progress_fault(value: Value) -> str | None:
    try:
        ArchiveProgress.parse(str(value))
    except ValueError as error:
        return str(error)
    return None


ARCHIVE_PROGRESS = Validator(
    "`<topic id>[/<lake id>] <partition>:<next offset>[:<leader epoch>],…`, or empty",
    lambda value: _progress_fault(value) is None,
    # Without the value, which may be very long.
    lambda name, value: f"Invalid value for configuration {name}: {_progress_fault(value)}",
)


def is_partition_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _PARTITION_DIGITS_MAX


PARTITION_NUMBERS = Validator(
    "numbers of partitions",
    lambda value: isinstance(value, tuple) and all(is_partition_number(number) for number in value),
    lambda name, value: f"Invalid value for configuration {name}: it must be a list of partition numbers",
)
# Below a megabyte a busy partition would roll many times a second; Kafka 4 refuses it too.
SEGMENT_BYTES = at_least(1024 * 1024)


def _topic(
    name: str,
    type_: SettingType,
    default: Value,
    doc: str,
    *synonyms: str | Synonym,
    valid: Validator | None = None,
    unit: str = "",
    internal: bool = False,
    without_effect: bool = False,
) -> Setting:
    return Setting(
        name=name,
        type=type_,
        default=default,
        doc=doc,
        validator=valid,
        unit=unit,
        update=Update.CLUSTER_WIDE,
        synonyms=tuple(Synonym(each) if isinstance(each, str) else each for each in synonyms),
        internal=internal,
        without_effect=without_effect,
    )


# A table reads by its rows; one argument per line would hide them.
# fmt: off
_RETENTION = (
    _topic("cleanup.policy", SettingType.LIST, ("delete",),
        "What happens to old data: `delete` drops whole segments, `compact` keeps the newest value of each key; "
        "both may be named together.", "log.cleanup.policy", valid=CLEANUP_POLICIES),
    _topic("retention.ms", SettingType.LONG, 14 * DAY_MS,
        "How long a record is kept under the `delete` policy; -1 keeps it for ever. Two weeks by default, where "
        "Kafka has one.", "log.retention.ms", Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS), valid=at_least(-1), unit="ms"),
    _topic("retention.bytes", SettingType.LONG, -1,
        "How large a partition may grow before its oldest segments are dropped; -1 sets no limit.",
        "log.retention.bytes", unit="bytes"),
    _topic("delete.retention.ms", SettingType.LONG, DAY_MS,
        "How long the mark of a deleted key stays in a compacted topic, so that slow readers learn of the deletion.",
        "log.cleaner.delete.retention.ms", valid=at_least(0), unit="ms"),
    _topic("min.compaction.lag.ms", SettingType.LONG, 0,
        "The age a record must reach before compaction may touch it.", "log.cleaner.min.compaction.lag.ms",
        valid=at_least(0), unit="ms"),
    _topic("max.compaction.lag.ms", SettingType.LONG, LONG_MAX,
        "The age at which a record becomes due for compaction, however little of the log is dirty.",
        "log.cleaner.max.compaction.lag.ms", valid=at_least(1), unit="ms"),
    _topic("min.cleanable.dirty.ratio", SettingType.DOUBLE, 0.5,
        "The share of a compacted log that must be uncompacted before the cleaner takes it up.",
        "log.cleaner.min.cleanable.ratio", valid=between(0, 1)),
    _topic("file.delete.delay.ms", SettingType.LONG, 60_000,
        "How long a dropped segment's files linger before they are removed, for readers still inside them.",
        "log.segment.delete.delay.ms", valid=at_least(0), unit="ms"),
)

_ARCHIVE = (
    _topic("penstock.archive.required", SettingType.BOOLEAN, False,
        "Whether retention waits for the archive: what `penstock.archive.progress` does not cover is kept, however "
        "old or large the log. Only DeleteRecords and the topic's deletion go further."),
    _topic("penstock.archive.progress", SettingType.STRING, "",
        "How far the archive has taken each partition. The archive sets it once its manifest is durable; it names "
        "the topic's id and the lake's, and a value for another one is refused.", valid=ARCHIVE_PROGRESS),
)

_RETIRING = (
    _topic("penstock.retire.to", SettingType.INT, None,
        "How many partitions shall be left: those with higher numbers are retired. They take writes, which go on to "
        "the others, keep what readers had until its retention passes, and then go. It can only be lowered, and "
        "vanishes when it has come true. `penstock topic alter --partitions` sets it.", valid=at_least(1),
        unit="partitions"),
    _topic("penstock.replicas.to", SettingType.INT, None,
        "How many replicas its partitions shall have as soon as there are brokers for them. Internal topics have it "
        "that were made while brokers were missing. It vanishes when it has come true.",
        valid=at_least(1), unit="replicas"),
    _topic("penstock.replicas.settled", SettingType.LIST, (),
        "Partitions that `penstock.replicas.to` does not mean: their replicas were moved by hand. It vanishes with "
        "that.",
        valid=PARTITION_NUMBERS),
    _topic("penstock.retire.grace.ms", SettingType.LONG, 7 * DAY_MS,
        "How long nobody must have written to a retired partition before it is removed for good.",
        valid=at_least(0), unit="ms"),
)

_SEGMENTS = (
    _topic("segment.bytes", SettingType.INT, 1024**3,
        "The size at which the active segment is closed and a new one begun.", "log.segment.bytes",
        valid=SEGMENT_BYTES, unit="bytes"),
    _topic("segment.ms", SettingType.LONG, 7 * DAY_MS,
        "The age at which the active segment is closed even when it is not full, so that retention can reach it.",
        "log.roll.ms", Synonym("log.roll.hours", HOUR_MS), valid=at_least(1), unit="ms"),
    _topic("segment.jitter.ms", SettingType.LONG, 0,
        "A random span taken off `segment.ms`, so that many partitions do not roll at the same moment.",
        "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS), valid=at_least(0), unit="ms"),
    _topic("segment.index.bytes", SettingType.INT, 10 * 1024 * 1024,
        "The largest offset index of one segment; a full index closes the segment.",
        "log.index.size.max.bytes", valid=at_least(4), unit="bytes"),
    _topic("index.interval.bytes", SettingType.INT, 4096,
        "How many bytes of the log lie between two entries of its sparse offset index.",
        "log.index.interval.bytes", valid=at_least(0), unit="bytes"),
    _topic("preallocate", SettingType.BOOLEAN, False,
        "Whether a new segment's file is given its full size at once.", "log.preallocate", without_effect=True),
    _topic("internal.segment.bytes", SettingType.INT, None,
        "Takes the place of `segment.bytes` without its lower bound; for tests only.", valid=at_least(1),
        unit="bytes", internal=True),
)

_DURABILITY = (
    _topic("penstock.ack.after", SettingType.STRING, "auto",
        "When a record counts as stored: `written` to the page cache, `synced` to the disk, or `auto`, which is "
        "`synced` for a partition with one replica and `written` where replication protects it.",
        "penstock.ack.after", valid=ACK_AFTER),
    _topic("flush.messages", SettingType.LONG, LONG_MAX,
        "After how many records the log is synced to disk. Any limit means that records are synced before they are "
        "acknowledged, whatever `penstock.ack.after` says.",
        "log.flush.interval.messages", valid=at_least(1), unit="records"),
    _topic("flush.ms", SettingType.LONG, LONG_MAX,
        "How long a record may wait in the page cache before the log is synced to disk.",
        "log.flush.interval.ms", "log.flush.scheduler.interval.ms", valid=at_least(0), unit="ms"),
    _topic("min.insync.replicas", SettingType.INT, 1,
        "How many in-sync replicas a write with acks=all needs to be accepted.", "min.insync.replicas",
        valid=at_least(1), unit="replicas"),
    _topic("unclean.leader.election.enable", SettingType.BOOLEAN, False,
        "Whether a replica that lags behind may lead when no other is left, at the price of losing records.",
        "unclean.leader.election.enable"),
)

_MESSAGES = (
    _topic("max.message.bytes", SettingType.INT, 1024 * 1024 + 12,
        "The largest record batch a producer may send, after compression.", "message.max.bytes",
        valid=at_least(0), unit="bytes"),
    _topic("compression.type", SettingType.STRING, "producer",
        "How batches are stored: as the producer compressed them (`producer`), or recompressed to the named codec.",
        "compression.type", valid=COMPRESSIONS),
    _topic("compression.gzip.level", SettingType.INT, -1,
        "The gzip level used when `compression.type` is gzip.", "compression.gzip.level", valid=GZIP_LEVELS),
    _topic("compression.lz4.level", SettingType.INT, 9, "The lz4 level used when `compression.type` is lz4.",
        "compression.lz4.level", valid=LZ4_LEVELS),
    _topic("compression.zstd.level", SettingType.INT, 3,
        "The zstd level used when `compression.type` is zstd.", "compression.zstd.level", valid=ZSTD_LEVELS),
    _topic("message.timestamp.type", SettingType.STRING, "CreateTime",
        "Whether a record carries the time its producer gave it or the time the broker appended it.",
        "log.message.timestamp.type", valid=TIMESTAMP_TYPES),
    _topic("message.timestamp.before.max.ms", SettingType.LONG, LONG_MAX,
        "How far a producer's timestamp may lie in the broker's past before the batch is refused.",
        "log.message.timestamp.before.max.ms", valid=at_least(0), unit="ms"),
    _topic("message.timestamp.after.max.ms", SettingType.LONG, HOUR_MS,
        "How far a producer's timestamp may lie in the broker's future before the batch is refused.",
        "log.message.timestamp.after.max.ms", valid=at_least(0), unit="ms"),
)

_REPLICATION = (
    _topic("replica.lag.max.messages", SettingType.LONG, -1,
        "How many records a follower may be behind and stay in sync; further behind for half of "
        "`replica.lag.time.max.ms` takes it out, a burst does not. -1 sets no limit.",
        valid=at_least(-1), unit="records"),
    _topic("leader.replication.throttled.replicas", SettingType.LIST, (),
        "The replicas whose leaders throttle what they send to followers.", valid=throttled_replicas()),
    _topic("follower.replication.throttled.replicas", SettingType.LIST, (),
        "The replicas that throttle what they fetch from their leaders.", valid=throttled_replicas()),
)

_REMOTE = (
    _topic("remote.storage.enable", SettingType.BOOLEAN, False,
        "Kafka's tiered storage; known so that tools can show it, and only `false` is served.",
        valid=NO_TIERED_STORAGE),
    _topic("remote.log.copy.disable", SettingType.BOOLEAN, False,
        "Whether tiered data becomes read-only; without tiered storage it changes nothing.",
        without_effect=True),
    _topic("remote.log.delete.on.disable", SettingType.BOOLEAN, False,
        "Whether tiered data goes when tiering is switched off; without tiered storage it changes nothing.",
        without_effect=True),
    _topic("local.retention.ms", SettingType.LONG, -2,
        "How long tiered data also stays local; -2 follows `retention.ms`.", "log.local.retention.ms",
        valid=at_least(-2), unit="ms", without_effect=True),
    _topic("local.retention.bytes", SettingType.LONG, -2,
        "How much tiered data also stays local; -2 follows `retention.bytes`.", "log.local.retention.bytes",
        valid=at_least(-2), unit="bytes", without_effect=True),
)

# fmt: on

TOPIC_SETTINGS = by_name(
    *_RETENTION, *_ARCHIVE, *_RETIRING, *_SEGMENTS, *_DURABILITY, *_MESSAGES, *_REPLICATION, *_REMOTE
)
