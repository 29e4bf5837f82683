"""Broker settings of one node: who it is, where it listens, and how it treats connections."""

from penstock.config.declaring import BOOLEAN, CLUSTER_WIDE, INT, LIST, LONG, PASSWORD, STRING, setting
from penstock.config.settings import INT_MAX, at_least, between, not_empty_list, one_of

# A table reads by its rows; one argument per line would hide them.
# fmt: off
NODE = (
    setting("node.id", INT, None, "This broker's number in the cluster.", at_least(0)),
    setting("broker.id", INT, -1, "The older name of `node.id`; both show the same number."),
    setting("broker.rack", STRING, None, "The rack this broker stands in; replicas are spread over racks."),
    setting("process.roles", LIST, None,
        "The roles of this process, as Kafka's tools expect them."),
    setting("log.dir", LIST, ("data",), "The data directory when `log.dirs` is not given."),
    setting("log.dirs", LIST, None, "The directories that hold the partitions."),
    setting("penstock.host.label", STRING, None,
        "The machine this broker runs on: replicas never share one."),
    setting("zookeeper.connect", STRING, None,
        "ZooKeeper's hosts, and the path to keep everything below: zk1:2181,zk2:2181/penstock. Unset, one node keeps "
        "its metadata in an embedded store."),
    setting("zookeeper.session.timeout.ms", INT, 18000,
        "How long a broker may be silent before ZooKeeper takes it for dead.", at_least(1)),
    setting("zookeeper.connection.timeout.ms", INT, None,
        "How long a start waits for ZooKeeper before it gives up; unset, it waits until it answers.",
        at_least(1)),
    setting("penstock.zookeeper.digest", PASSWORD, None,
        "user:password for ZooKeeper: only who knows it may read or write this cluster's metadata there."),
)

_PROTOCOLS_BY_NAME = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
LISTENERS = (
    setting("listeners", LIST, ("PLAINTEXT://:9092",),
        "The addresses the broker listens on, each under a name: CLIENTS://:9092,BROKERS://10.0.0.1:9093.",
        not_empty_list()),
    setting("advertised.listeners", LIST, None,
        "The addresses given to the clients of each listener, where they differ from `listeners`."),
    setting("listener.security.protocol.map", STRING, _PROTOCOLS_BY_NAME,
        "Which security protocol each listener name speaks: only PLAINTEXT is served yet."),
    setting("inter.broker.listener.name", STRING, None,
        "The listener that brokers use among themselves; unset: the one named as `security.inter.broker.protocol`."),
    setting("security.inter.broker.protocol", STRING, "PLAINTEXT",
        "The protocol brokers use among themselves: no other yet.", one_of("PLAINTEXT")),
    setting("penstock.console.port", INT, 9080,
        "The port of /metrics, /healthz and the console; 0 takes a free one, -1 none.", between(-1, 65535)),
    setting("penstock.console.host", STRING, None,
        "The address of that port; unset: the listener's."),
    setting("penstock.log.format", STRING, "text",
        "How log lines on stderr look: text for people, json for machines.", one_of("text", "json")),
    setting("penstock.log.level", STRING, "info",
        "The least severe log lines that are written.", one_of("debug", "info", "warning", "error")),
)

NETWORK = (
    setting("socket.send.buffer.bytes", INT, -1,
        "The kernel's send buffer of a connection; -1 lets the kernel size it."),
    setting("socket.receive.buffer.bytes", INT, -1,
        "The kernel's receive buffer of a connection; -1 lets the kernel size it."),
    setting("penstock.idle.poll.us", INT, 50,
        "How long to poll for the next request after a small answer before sleeping; 0 sleeps at once.",
        between(0, 1000)),
    setting("socket.request.max.bytes", INT, 104857600,
        "The largest request read; a larger one closes the connection.", at_least(1)),
    setting("socket.listen.backlog.size", INT, 1024,
        "How many connections may wait to be accepted; in Kafka 50: those beyond wait a second and try again.",
        at_least(1)),
    setting("max.connections", INT, INT_MAX, "How many connections the broker holds at once.", at_least(0),
        CLUSTER_WIDE),
    setting("max.connections.per.ip", INT, INT_MAX, "How many connections one address may hold.",
        at_least(0), CLUSTER_WIDE),
    setting("max.connections.per.ip.overrides", STRING, "",
        "Other limits for single addresses, as host:count pairs.", None, CLUSTER_WIDE),
    setting("max.connection.creation.rate", INT, INT_MAX, "How many connections are accepted in a second.",
        at_least(0), CLUSTER_WIDE),
    setting("connections.max.idle.ms", LONG, 600000, "How long a silent connection is kept."),
    setting("connection.failed.authentication.delay.ms", INT, 100,
        "How long the answer to a failed log-in is held back.", at_least(0)),
    setting("queued.max.requests", INT, 500,
        "How many requests may wait before sockets are no longer read.", at_least(1)),
    setting("queued.max.request.bytes", LONG, 128 * 1024**2,
        "How many bytes of large requests all connections together may hold while they arrive; past it reading waits, "
        "except from one. Kafka's default, -1, sets no limit.", at_least(-1)),
    setting("request.timeout.ms", INT, 30000, "How long a request between brokers may take."),
    setting("num.network.threads", INT, 3, "Known to Kafka's tools; one event loop does this work here.",
        at_least(1), CLUSTER_WIDE),
    setting("num.io.threads", INT, 8, "How many threads do the blocking disk work.", at_least(1), CLUSTER_WIDE),
    setting("background.threads", INT, 10,
        "Known to Kafka's tools; background work shares the disk threads here.", at_least(1), CLUSTER_WIDE),
    setting("num.recovery.threads.per.data.dir", INT, 2,
        "How many threads check a directory's logs after a crash.", at_least(1), CLUSTER_WIDE),
)

SHUTDOWN = (
    setting("controlled.shutdown.enable", BOOLEAN, True,
        "Whether a stopping broker hands over leadership first."),
    setting("quota.window.num", INT, 11, "How many samples a quota's rate is taken over.", at_least(1)),
    setting("quota.window.size.seconds", INT, 1, "How long one such sample is.", at_least(1),
        unit="seconds"),
)
# fmt: on
