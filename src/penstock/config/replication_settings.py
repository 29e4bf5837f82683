"""Broker settings of a cluster: how followers fetch, who leads, and how replicas move between brokers."""

from penstock.config.declaring import BOOLEAN, CLUSTER_WIDE, INT, LONG, PER_BROKER, STRING, setting
from penstock.config.settings import LONG_MAX, at_least, between, one_of_or_unset

# The one selector there is, under the name of Kafka's.
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# A table reads by its rows; one argument per line would hide them.
# fmt: off
REPLICATION = (
    setting("replica.fetch.max.bytes", INT, 1048576, "How many bytes a follower asks for per partition.",
        at_least(0)),
    setting("replica.fetch.response.max.bytes", INT, 10485760,
        "How many bytes a follower asks for in one answer.", at_least(0)),
    setting("replica.fetch.min.bytes", INT, 1, "How few bytes a follower waits for."),
    setting("replica.fetch.wait.max.ms", INT, 500, "How long a follower's fetch may wait for data."),
    setting("replica.fetch.backoff.ms", INT, 1000, "How long a follower rests after a failed fetch.",
        at_least(0)),
    setting("replica.lag.time.max.ms", LONG, 30000, "How long a follower may lag and stay in sync."),
    setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000,
        "How often high watermarks are written down."),
    setting("replica.socket.timeout.ms", INT, 30000, "How long a follower waits for the network."),
    setting("replica.socket.receive.buffer.bytes", INT, 65536, "A follower's kernel receive buffer."),
    setting("replica.selector.class", STRING, None,
        "How the replica a consumer reads from is chosen: unset, it is the leader; with Kafka's rack-aware selector, "
        "one in the consumer's own rack (`client.rack`).", one_of_or_unset(RACK_AWARE)),
    setting("num.replica.fetchers", INT, 1, "How many connections a follower uses per leader.", None, CLUSTER_WIDE),
    setting("auto.leader.rebalance.enable", BOOLEAN, True,
        "Whether leadership returns to the preferred replicas."),
    setting("leader.imbalance.check.interval.seconds", LONG, 300,
        "How often leadership is compared with the preferred.", at_least(1), unit="seconds"),
    setting("leader.replication.throttled.rate", LONG, LONG_MAX,
        "How many bytes per second this broker sends to replicas that are only just being added, and to those of "
        "partitions that `leader.replication.throttled.replicas` names, until they are in sync.", at_least(1),
        PER_BROKER, "bytes/s"),
    setting("follower.replication.throttled.rate", LONG, LONG_MAX,
        "How many bytes per second this broker fetches for replicas that are only just being added, and for those "
        "that `follower.replication.throttled.replicas` names, until they are in sync.", at_least(1),
        PER_BROKER, "bytes/s"),
)

MOVES = (
    setting("penstock.heal.grace.ms", LONG, 300000,
        "How long a broker may be gone before its replicas are rebuilt on others.", at_least(0), CLUSTER_WIDE),
    setting("penstock.heal.lost.percent.max", INT, 30,
        "Nothing is rebuilt while more than one broker and more than this share of all are gone.",
        between(0, 100), CLUSTER_WIDE, "%"),
    setting("penstock.disk.free.percent.min", INT, 10,
        "A broker whose disk has less than this left is given no more replicas.", between(0, 100), CLUSTER_WIDE, "%"),
    setting("penstock.moves.max", INT, 100,
        "How many partitions may be moving at once when brokers are replaced or drained.", at_least(1), CLUSTER_WIDE,
        "partitions"),
    setting("penstock.fill.empty.brokers", BOOLEAN, True,
        "Whether a broker without any replica is given its share.", None, CLUSTER_WIDE),
    setting("penstock.retire.check.interval.ms", LONG, 30000,
        "How often the controller looks whether retired partitions are empty, or not needed any more.",
        at_least(1), CLUSTER_WIDE),
    setting("penstock.broker.draining", BOOLEAN, False,
        "Set for one broker, its replicas move to others and no more come.", None, PER_BROKER),
)
# fmt: on
