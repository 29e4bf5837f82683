"""Broker settings of what is stored: how topics are made, how their logs are kept, compacted and read."""

from penstock.config.declaring import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, setting
from penstock.config.settings import LONG_MAX, at_least

# A table reads by its rows; one argument per line would hide them.
# fmt: off
TOPICS = (
    setting("num.partitions", INT, 1, "How many partitions a topic gets when nobody says.", at_least(1)),
    setting("default.replication.factor", INT, 1, "How many replicas a partition gets when nobody says.",
        at_least(1)),
    setting("auto.create.topics.enable", BOOLEAN, True, "Whether asking for an unknown topic creates it."),
    setting("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted."),
    setting("max.request.partition.size.limit", INT, 2000,
        "How many partitions one DescribeTopicPartitions answer may hold.", at_least(1)),
)

LOGS = (
    setting("log.retention.minutes", INT, None, "Retention in minutes, when `log.retention.ms` is not set."),
    setting("log.retention.hours", INT, 336,
        "Retention in hours, when neither milliseconds nor minutes are set: two weeks, where Kafka has one."),
    setting("log.roll.hours", INT, 168, "A segment's largest age in hours, when `log.roll.ms` is not set.",
        at_least(1)),
    setting("log.roll.jitter.hours", INT, 0, "The jitter in hours, when `log.roll.jitter.ms` is not set.",
        at_least(0)),
    setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX,
        "How often logs are looked at for what `log.flush.interval.ms` asks."),
    setting("log.flush.offset.checkpoint.interval.ms", INT, 60000,
        "How often the recovery point is written down.", at_least(0)),
    setting("log.flush.start.offset.checkpoint.interval.ms", INT, 60000,
        "How often log starts are written down.", at_least(0)),
    setting("log.retention.check.interval.ms", LONG, 300000,
        "How often retention looks for segments to drop.", at_least(1)),
    setting("log.initial.task.delay.ms", LONG, 30000,
        "How long after the start the log's background work begins.", at_least(0), internal=True),
    setting("log.dir.failure.timeout.ms", LONG, 30000,
        "How long the broker stays up when it cannot report a failed log directory.", at_least(1)),
    setting("penstock.archive.held.bytes.alarm", LONG, 10 * 1024**3,
        "How much of a topic retention may keep for an archive that has not taken it yet before an alarm is raised; "
        "-1 raises none.", at_least(-1), CLUSTER_WIDE, "bytes"),
    setting("log.cleaner.enable", BOOLEAN, True, "Whether compacted topics are compacted."),
    setting("log.cleaner.threads", INT, 1, "How many threads compact logs.", at_least(0), CLUSTER_WIDE),
    setting("log.cleaner.backoff.ms", LONG, 15000, "How long the cleaner rests when no log is due.",
        at_least(0), CLUSTER_WIDE),
    setting("log.cleaner.dedupe.buffer.size", LONG, 134217728, "The cleaner's memory for keys.", None,
        CLUSTER_WIDE, "bytes"),
    setting("log.cleaner.io.buffer.size", INT, 524288, "The cleaner's memory for reading and writing.",
        at_least(0), CLUSTER_WIDE, "bytes"),
    setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full the cleaner's key table may get.",
        None, CLUSTER_WIDE),
    setting("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308,
        "The cleaner's disk budget.", None, CLUSTER_WIDE, "bytes/s"),
)

FETCH = (
    setting("fetch.max.bytes", INT, 57671680, "The most bytes one Fetch answer carries.", at_least(1024)),
    setting("max.incremental.fetch.session.cache.slots", INT, 1000,
        "How many incremental fetch sessions are kept.", at_least(0)),
    setting("fetch.purgatory.purge.interval.requests", INT, 1000,
        "Known to Kafka's tools; waiting fetches leave at once here."),
    setting("producer.purgatory.purge.interval.requests", INT, 1000,
        "Known to Kafka's tools; waiting produces leave at once here."),
    setting("delete.records.purgatory.purge.interval.requests", INT, 1,
        "Known to Kafka's tools; waiting deletions leave at once here."),
)
# fmt: on
