"""The broker settings that mean something to Penstock, under Kafka's names, plus our own under `penstock.`.

The ones that only give topics their defaults are made from the topic table, so the two cannot disagree. What Kafka
can change while it runs and Penstock cannot (listeners) is declared read-only: a change without effect helps nobody.
"""

from dataclasses import replace

from penstock.config.settings import (
    INT_MAX,
    LONG_MAX,
    Setting,
    SettingType,
    Update,
    Validator,
    Value,
    at_least,
    between,
    by_name,
    not_empty_list,
    one_of,
    one_of_or_unset,
)
from penstock.config.topic_settings import TOPIC_SETTINGS

_BOOLEAN, _INT, _LONG, _DOUBLE = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG, SettingType.DOUBLE
_STRING, _LIST, _SHORT = SettingType.STRING, SettingType.LIST, SettingType.SHORT
_WIDE = Update.CLUSTER_WIDE

# The one selector there is, under the name of Kafka's.
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _broker(
    name: str,
    type_: SettingType,
    default: Value,
    doc: str,
    valid: Validator | None = None,
    update: Update = Update.READ_ONLY,
    unit: str | None = None,
    internal: bool = False,
) -> Setting:
    if unit is None:
        last = name.rpartition(".")[2]
        unit = last if last in {"ms", "bytes", "minutes", "hours"} else ""
    return Setting(
        name=name,
        type=type_,
        default=default,
        doc=doc,
        validator=valid,
        update=update,
        unit=unit,
        internal=internal,
    )


# A table reads by its rows; one argument per line would hide them.
# fmt: off
_NODE = (
    _broker("node.id", _INT, None, "This broker's number in the cluster.", at_least(0)),
    _broker("broker.id", _INT, -1, "The older name of `node.id`; both show the same number."),
    _broker("broker.rack", _STRING, None, "The rack this broker stands in; replicas are spread over racks."),
    _broker("process.roles", _LIST, None,
        "The roles of this process, as Kafka's tools expect them."),
    _broker("log.dir", _LIST, ("data",), "The data directory when `log.dirs` is not given."),
    _broker("log.dirs", _LIST, None, "The directories that hold the partitions."),
    _broker("penstock.host.label", _STRING, None,
        "The machine this broker runs on: replicas never share one."),
    _broker("zookeeper.connect", _STRING, None,
        "ZooKeeper's hosts, and the path to keep everything below: zk1:2181,zk2:2181/penstock. Unset, one node keeps "
        "its metadata in an embedded store."),
    _broker("zookeeper.session.timeout.ms", _INT, 18000,
        "How long a broker may be silent before ZooKeeper takes it for dead.", at_least(1)),
    _broker("zookeeper.connection.timeout.ms", _INT, None,
        "How long a start waits for ZooKeeper before it gives up; unset, it waits until it answers.",
        at_least(1)),
    _broker("penstock.zookeeper.digest", SettingType.PASSWORD, None,
        "user:password for ZooKeeper: only who knows it may read or write this cluster's metadata there."),
)

_PROTOCOLS_BY_NAME = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_LISTENERS = (
    _broker("listeners", _LIST, ("PLAINTEXT://:9092",),
        "The addresses the broker listens on, each under a name: CLIENTS://:9092,BROKERS://10.0.0.1:9093.",
        not_empty_list()),
    _broker("advertised.listeners", _LIST, None,
        "The addresses given to the clients of each listener, where they differ from `listeners`."),
    _broker("listener.security.protocol.map", _STRING, _PROTOCOLS_BY_NAME,
        "Which security protocol each listener name speaks: only PLAINTEXT is served yet."),
    _broker("inter.broker.listener.name", _STRING, None,
        "The listener that brokers use among themselves; unset: the one named as `security.inter.broker.protocol`."),
    _broker("security.inter.broker.protocol", _STRING, "PLAINTEXT",
        "The protocol brokers use among themselves: no other yet.", one_of("PLAINTEXT")),
    _broker("penstock.console.port", _INT, 9080,
        "The port of /metrics, /healthz and the console; 0 takes a free one, -1 none.", between(-1, 65535)),
    _broker("penstock.console.host", _STRING, None,
        "The address of that port; unset: the listener's."),
    _broker("penstock.log.format", _STRING, "text",
        "How log lines on stderr look: text for people, json for machines.", one_of("text", "json")),
    _broker("penstock.log.level", _STRING, "info",
        "The least severe log lines that are written.", one_of("debug", "info", "warning", "error")),
)

_NETWORK = (
    _broker("socket.send.buffer.bytes", _INT, -1,
        "The kernel's send buffer of a connection; -1 lets the kernel size it."),
    _broker("socket.receive.buffer.bytes", _INT, -1,
        "The kernel's receive buffer of a connection; -1 lets the kernel size it."),
    _broker("penstock.idle.poll.us", _INT, 50,
        "How long to poll for the next request after a small answer before sleeping; 0 sleeps at once.",
        between(0, 1000)),
    _broker("socket.request.max.bytes", _INT, 104857600,
        "The largest request read; a larger one closes the connection.", at_least(1)),
    _broker("socket.listen.backlog.size", _INT, 1024,
        "How many connections may wait to be accepted; in Kafka 50: those beyond wait a second and try again.",
        at_least(1)),
    _broker("max.connections", _INT, INT_MAX, "How many connections the broker holds at once.", at_least(0),
        _WIDE),
    _broker("max.connections.per.ip", _INT, INT_MAX, "How many connections one address may hold.",
        at_least(0), _WIDE),
    _broker("max.connections.per.ip.overrides", _STRING, "",
        "Other limits for single addresses, as host:count pairs.", None, _WIDE),
    _broker("max.connection.creation.rate", _INT, INT_MAX, "How many connections are accepted in a second.",
        at_least(0), _WIDE),
    _broker("connections.max.idle.ms", _LONG, 600000, "How long a silent connection is kept."),
    _broker("connection.failed.authentication.delay.ms", _INT, 100,
        "How long the answer to a failed log-in is held back.", at_least(0)),
    _broker("queued.max.requests", _INT, 500,
        "How many requests may wait before sockets are no longer read.", at_least(1)),
    _broker("queued.max.request.bytes", _LONG, 128 * 1024**2,
        "How many bytes of large requests all connections together may hold while they arrive; past it reading waits, "
        "except from one. Kafka's default, -1, sets no limit.", at_least(-1)),
    _broker("request.timeout.ms", _INT, 30000, "How long a request between brokers may take."),
    _broker("num.network.threads", _INT, 3, "Known to Kafka's tools; one event loop does this work here.",
        at_least(1), _WIDE),
    _broker("num.io.threads", _INT, 8, "How many threads do the blocking disk work.", at_least(1), _WIDE),
    _broker("background.threads", _INT, 10,
        "Known to Kafka's tools; background work shares the disk threads here.", at_least(1), _WIDE),
    _broker("num.recovery.threads.per.data.dir", _INT, 2,
        "How many threads check a directory's logs after a crash.", at_least(1), _WIDE),
)

_TOPICS = (
    _broker("num.partitions", _INT, 1, "How many partitions a topic gets when nobody says.", at_least(1)),
    _broker("default.replication.factor", _INT, 1, "How many replicas a partition gets when nobody says.",
        at_least(1)),
    _broker("auto.create.topics.enable", _BOOLEAN, True, "Whether asking for an unknown topic creates it."),
    _broker("delete.topic.enable", _BOOLEAN, True, "Whether topics can be deleted."),
    _broker("max.request.partition.size.limit", _INT, 2000,
        "How many partitions one DescribeTopicPartitions answer may hold.", at_least(1)),
)

_LOGS = (
    _broker("log.retention.minutes", _INT, None, "Retention in minutes, when `log.retention.ms` is not set."),
    _broker("log.retention.hours", _INT, 336,
        "Retention in hours, when neither milliseconds nor minutes are set: two weeks, where Kafka has one."),
    _broker("log.roll.hours", _INT, 168, "A segment's largest age in hours, when `log.roll.ms` is not set.",
        at_least(1)),
    _broker("log.roll.jitter.hours", _INT, 0, "The jitter in hours, when `log.roll.jitter.ms` is not set.",
        at_least(0)),
    _broker("log.flush.scheduler.interval.ms", _LONG, LONG_MAX,
        "How often logs are looked at for what `log.flush.interval.ms` asks."),
    _broker("log.flush.offset.checkpoint.interval.ms", _INT, 60000,
        "How often the recovery point is written down.", at_least(0)),
    _broker("log.flush.start.offset.checkpoint.interval.ms", _INT, 60000,
        "How often log starts are written down.", at_least(0)),
    _broker("log.retention.check.interval.ms", _LONG, 300000,
        "How often retention looks for segments to drop.", at_least(1)),
    _broker("log.initial.task.delay.ms", _LONG, 30000,
        "How long after the start the log's background work begins.", at_least(0), internal=True),
    _broker("log.dir.failure.timeout.ms", _LONG, 30000,
        "How long the broker stays up when it cannot report a failed log directory.", at_least(1)),
    _broker("penstock.archive.held.bytes.alarm", _LONG, 10 * 1024**3,
        "How much of a topic retention may keep for an archive that has not taken it yet before an alarm is raised; "
        "-1 raises none.", at_least(-1), _WIDE, "bytes"),
    _broker("log.cleaner.enable", _BOOLEAN, True, "Whether compacted topics are compacted."),
    _broker("log.cleaner.threads", _INT, 1, "How many threads compact logs.", at_least(0), _WIDE),
    _broker("log.cleaner.backoff.ms", _LONG, 15000, "How long the cleaner rests when no log is due.",
        at_least(0), _WIDE),
    _broker("log.cleaner.dedupe.buffer.size", _LONG, 134217728, "The cleaner's memory for keys.", None,
        _WIDE, "bytes"),
    _broker("log.cleaner.io.buffer.size", _INT, 524288, "The cleaner's memory for reading and writing.",
        at_least(0), _WIDE, "bytes"),
    _broker("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, "How full the cleaner's key table may get.",
        None, _WIDE),
    _broker("log.cleaner.io.max.bytes.per.second", _DOUBLE, 1.7976931348623157e308,
        "The cleaner's disk budget.", None, _WIDE, "bytes/s"),
)

_FETCH = (
    _broker("fetch.max.bytes", _INT, 57671680, "The most bytes one Fetch answer carries.", at_least(1024)),
    _broker("max.incremental.fetch.session.cache.slots", _INT, 1000,
        "How many incremental fetch sessions are kept.", at_least(0)),
    _broker("fetch.purgatory.purge.interval.requests", _INT, 1000,
        "Known to Kafka's tools; waiting fetches leave at once here."),
    _broker("producer.purgatory.purge.interval.requests", _INT, 1000,
        "Known to Kafka's tools; waiting produces leave at once here."),
    _broker("delete.records.purgatory.purge.interval.requests", _INT, 1,
        "Known to Kafka's tools; waiting deletions leave at once here."),
)

_REPLICATION = (
    _broker("replica.fetch.max.bytes", _INT, 1048576, "How many bytes a follower asks for per partition.",
        at_least(0)),
    _broker("replica.fetch.response.max.bytes", _INT, 10485760,
        "How many bytes a follower asks for in one answer.", at_least(0)),
    _broker("replica.fetch.min.bytes", _INT, 1, "How few bytes a follower waits for."),
    _broker("replica.fetch.wait.max.ms", _INT, 500, "How long a follower's fetch may wait for data."),
    _broker("replica.fetch.backoff.ms", _INT, 1000, "How long a follower rests after a failed fetch.",
        at_least(0)),
    _broker("replica.lag.time.max.ms", _LONG, 30000, "How long a follower may lag and stay in sync."),
    _broker("replica.high.watermark.checkpoint.interval.ms", _LONG, 5000,
        "How often high watermarks are written down."),
    _broker("replica.socket.timeout.ms", _INT, 30000, "How long a follower waits for the network."),
    _broker("replica.socket.receive.buffer.bytes", _INT, 65536, "A follower's kernel receive buffer."),
    _broker("replica.selector.class", _STRING, None,
        "How the replica a consumer reads from is chosen: unset, it is the leader; with Kafka's rack-aware selector, "
        "one in the consumer's own rack (`client.rack`).", one_of_or_unset(RACK_AWARE)),
    _broker("num.replica.fetchers", _INT, 1, "How many connections a follower uses per leader.", None, _WIDE),
    _broker("auto.leader.rebalance.enable", _BOOLEAN, True,
        "Whether leadership returns to the preferred replicas."),
    _broker("leader.imbalance.check.interval.seconds", _LONG, 300,
        "How often leadership is compared with the preferred.", at_least(1), unit="seconds"),
    _broker("leader.replication.throttled.rate", _LONG, LONG_MAX,
        "How many bytes per second this broker sends to replicas that are only just being added, and to those of "
        "partitions that `leader.replication.throttled.replicas` names, until they are in sync.", at_least(1),
        Update.PER_BROKER, "bytes/s"),
    _broker("follower.replication.throttled.rate", _LONG, LONG_MAX,
        "How many bytes per second this broker fetches for replicas that are only just being added, and for those "
        "that `follower.replication.throttled.replicas` names, until they are in sync.", at_least(1),
        Update.PER_BROKER, "bytes/s"),
)

_MOVES = (
    _broker("penstock.heal.grace.ms", _LONG, 300000,
        "How long a broker may be gone before its replicas are rebuilt on others.", at_least(0), _WIDE),
    _broker("penstock.heal.lost.percent.max", _INT, 30,
        "Nothing is rebuilt while more than one broker and more than this share of all are gone.",
        between(0, 100), _WIDE, "%"),
    _broker("penstock.disk.free.percent.min", _INT, 10,
        "A broker whose disk has less than this left is given no more replicas.", between(0, 100), _WIDE, "%"),
    _broker("penstock.moves.max", _INT, 100,
        "How many partitions may be moving at once when brokers are replaced or drained.", at_least(1), _WIDE,
        "partitions"),
    _broker("penstock.fill.empty.brokers", _BOOLEAN, True,
        "Whether a broker without any replica is given its share.", None, _WIDE),
    _broker("penstock.retire.check.interval.ms", _LONG, 30000,
        "How often the controller looks whether retired partitions are empty, or not needed any more.",
        at_least(1), _WIDE),
    _broker("penstock.broker.draining", _BOOLEAN, False,
        "Set for one broker, its replicas move to others and no more come.", None, Update.PER_BROKER),
)

_PRODUCERS = (
    _broker("producer.id.expiration.ms", _INT, 86400000,
        "How long an idle producer's sequence numbers are remembered.", at_least(1), _WIDE),
    _broker("producer.id.expiration.check.interval.ms", _INT, 600000,
        "How often idle producers are looked for.", at_least(1), internal=True),
    _broker("transaction.max.timeout.ms", _INT, 900000, "The longest transaction a producer may ask for.",
        at_least(1)),
    _broker("transactional.id.expiration.ms", _INT, 604800000,
        "How long an idle transactional id is remembered.", at_least(1)),
    _broker("transaction.partition.verification.enable", _BOOLEAN, True,
        "Whether a partition asks the coordinator before it takes transactional writes.", None, _WIDE),
)

_GROUPS = (
    _broker("group.initial.rebalance.delay.ms", _INT, 3000,
        "How long the first members of an empty group wait for others, so that one rebalance serves all."),
    _broker("group.min.session.timeout.ms", _INT, 6000, "The shortest session a member may ask for."),
    _broker("group.max.session.timeout.ms", _INT, 1800000, "The longest session a member may ask for."),
    _broker("group.max.size", _INT, INT_MAX, "How many members a group may have.", at_least(1)),
    _broker("offset.metadata.max.bytes", _INT, 4096,
        "How much a client may note beside an offset it commits."),
    _broker("offsets.retention.minutes", _INT, 10080,
        "How long a group's offsets are kept once it has no members, or nobody in it reads the topic.",
        at_least(1), unit="minutes"),
    _broker("offsets.retention.check.interval.ms", _LONG, 600000,
        "How often offsets that are no longer kept are looked for.", at_least(1)),
    _broker("offsets.topic.num.partitions", _INT, 50,
        "How many partitions `__consumer_offsets` gets; must not change afterwards.", at_least(1)),
    _broker("offsets.topic.replication.factor", _SHORT, 3,
        "How many replicas `__consumer_offsets` gets, as far as there are brokers; the others when there are.",
        at_least(1)),
    _broker("offsets.topic.segment.bytes", _INT, 104857600,
        "The size of the segments of `__consumer_offsets`: small ones are compacted and loaded sooner.", at_least(1)),
    _broker("offsets.load.buffer.size", _INT, 5242880,
        "How many bytes are read at once when groups are loaded.", at_least(1), unit="bytes"),
)

_SHUTDOWN = (
    _broker("controlled.shutdown.enable", _BOOLEAN, True,
        "Whether a stopping broker hands over leadership first."),
    _broker("quota.window.num", _INT, 11, "How many samples a quota's rate is taken over.", at_least(1)),
    _broker("quota.window.size.seconds", _INT, 1, "How long one such sample is.", at_least(1),
        unit="seconds"),
)
# fmt: on


def _topic_defaults() -> list[Setting]:
    """One broker setting for every topic setting that has one: same type, same values, same sentence."""
    made = []
    for topic in TOPIC_SETTINGS.values():
        if topic.synonyms:
            several = len(topic.synonyms) > 1
            made.append(
                replace(
                    topic,
                    name=topic.synonyms[0].name,
                    default=None if several else topic.default,
                    doc=f"The default of the topic setting `{topic.name}`.",
                    synonyms=(),
                )
            )
    return made


def _with_families(table: dict[str, Setting]) -> dict[str, Setting]:
    """Settings that say one thing in several units know each other: the first that is set counts."""
    for topic in TOPIC_SETTINGS.values():
        if len(topic.synonyms) > 1:
            # The flush scheduler's interval is only a fall-back; described by itself it has no synonyms.
            members = topic.synonyms[:1] if topic.name == "flush.ms" else topic.synonyms
            for member in members:
                table[member.name] = replace(table[member.name], synonyms=topic.synonyms)
    return table


# Whoever sets one of these is told: nothing here asks for them (yet).
_WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "connection.failed.authentication.delay.ms",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "log.dir.failure.timeout.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "max.connection.creation.rate",
        "max.connections.per.ip.overrides",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "process.roles",
        "producer.id.expiration.check.interval.ms",
        "producer.purgatory.purge.interval.requests",
        "queued.max.requests",
        "quota.window.num",
        "quota.window.size.seconds",
        "replica.socket.receive.buffer.bytes",
        "replica.socket.timeout.ms",
        "request.timeout.ms",
        "transaction.partition.verification.enable",
        "transactional.id.expiration.ms",
    }
)


def _marked(table: dict[str, Setting]) -> dict[str, Setting]:
    return {
        name: replace(setting, without_effect=setting.without_effect or name in _WITHOUT_EFFECT)
        for name, setting in table.items()
    }


BROKER_SETTINGS = _marked(
    _with_families(
        by_name(
            *_NODE,
            *_LISTENERS,
            *_NETWORK,
            *_TOPICS,
            *_LOGS,
            *_FETCH,
            *_REPLICATION,
            *_MOVES,
            *_PRODUCERS,
            *_GROUPS,
            *_SHUTDOWN,
            *_topic_defaults(),
        )
    )
)
