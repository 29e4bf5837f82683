"""Broker settings of what is remembered for clients: producers and transactions, groups and their offsets."""

from penstock.config.declaring import BOOLEAN, CLUSTER_WIDE, INT, LONG, SHORT, setting
from penstock.config.settings import INT_MAX, at_least

# A table reads by its rows; one argument per line would hide them.
# fmt: off
PRODUCERS = (
    setting("producer.id.expiration.ms", INT, 86400000,
        "How long an idle producer's sequence numbers are remembered.", at_least(1), CLUSTER_WIDE),
    setting("producer.id.expiration.check.interval.ms", INT, 600000,
        "How often idle producers are looked for.", at_least(1), internal=True),
    setting("transaction.max.timeout.ms", INT, 900000, "The longest transaction a producer may ask for.",
        at_least(1)),
    setting("transactional.id.expiration.ms", INT, 604800000,
        "How long an idle transactional id is remembered.", at_least(1)),
    setting("transaction.partition.verification.enable", BOOLEAN, True,
        "Whether a partition asks the coordinator before it takes transactional writes.", None, CLUSTER_WIDE),
    setting("penstock.transactions.enable", BOOLEAN, False,
        "Whether producers with a transactional id are served. **Not complete yet**: without it they are refused at "
        "once, as they should be for now."),
    setting("transaction.state.log.num.partitions", INT, 50,
        "How many partitions `__transaction_state` gets; must not change afterwards.", at_least(1)),
    setting("transaction.state.log.replication.factor", SHORT, 3,
        "How many replicas `__transaction_state` gets, as far as there are brokers; the others when there are.",
        at_least(1)),
    setting("transaction.state.log.min.isr", INT, 2,
        "How many in-sync replicas a transaction's state is stored on before it counts, as far as there are replicas.",
        at_least(1)),
    setting("transaction.state.log.segment.bytes", INT, 104857600,
        "The size of the segments of `__transaction_state`: small ones are compacted and loaded sooner.", at_least(1)),
    setting("transaction.state.log.load.buffer.size", INT, 5242880,
        "How many bytes are read at once when transactions are loaded.", at_least(1), unit="bytes"),
)

GROUPS = (
    setting("group.initial.rebalance.delay.ms", INT, 3000,
        "How long the first members of an empty group wait for others, so that one rebalance serves all."),
    setting("group.min.session.timeout.ms", INT, 6000, "The shortest session a member may ask for."),
    setting("group.max.session.timeout.ms", INT, 1800000, "The longest session a member may ask for."),
    setting("group.max.size", INT, INT_MAX, "How many members a group may have.", at_least(1)),
    setting("offset.metadata.max.bytes", INT, 4096,
        "How much a client may note beside an offset it commits."),
    setting("offsets.retention.minutes", INT, 10080,
        "How long a group's offsets are kept once it has no members, or nobody in it reads the topic.",
        at_least(1), unit="minutes"),
    setting("offsets.retention.check.interval.ms", LONG, 600000,
        "How often offsets that are no longer kept are looked for.", at_least(1)),
    setting("offsets.topic.num.partitions", INT, 50,
        "How many partitions `__consumer_offsets` gets; must not change afterwards.", at_least(1)),
    setting("offsets.topic.replication.factor", SHORT, 3,
        "How many replicas `__consumer_offsets` gets, as far as there are brokers; the others when there are.",
        at_least(1)),
    setting("offsets.topic.segment.bytes", INT, 104857600,
        "The size of the segments of `__consumer_offsets`: small ones are compacted and loaded sooner.", at_least(1)),
    setting("offsets.commit.timeout.ms", INT, 5000,
        "How long the replicas of `__consumer_offsets` may take to have what is written; then who waits is refused.",
        at_least(1)),
    setting("offsets.load.buffer.size", INT, 5242880,
        "How many bytes are read at once when groups are loaded.", at_least(1), unit="bytes"),
)
# fmt: on
