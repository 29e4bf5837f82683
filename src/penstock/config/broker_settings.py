"""The broker settings that mean something to Penstock, under Kafka's names, plus our own under `penstock.`.

Each area has its table; here they become one. The settings that only give topics their defaults are made from the topic
table, so the two cannot disagree. What Kafka can change while it runs and Penstock cannot (listeners) is declared
read-only: a change without effect helps nobody.
"""

from dataclasses import replace

from penstock.config.coordinator_settings import GROUPS, PRODUCERS
from penstock.config.log_settings import FETCH, LOGS, TOPICS
from penstock.config.node_settings import LISTENERS, NETWORK, NODE, SHUTDOWN
from penstock.config.replication_settings import MOVES, REPLICATION
from penstock.config.settings import Setting, by_name
from penstock.config.topic_settings import TOPIC_SETTINGS


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
            *NODE,
            *LISTENERS,
            *NETWORK,
            *TOPICS,
            *LOGS,
            *FETCH,
            *REPLICATION,
            *MOVES,
            *PRODUCERS,
            *GROUPS,
            *SHUTDOWN,
            *_topic_defaults(),
        )
    )
)
