"""`penstock why TOPIC`: why it is offline, under-replicated or refuses writes, and what mends it."""

import time
from typing import TYPE_CHECKING

from penstock.cli.findings import print_findings
from penstock.cli.output import print_json
from penstock.cli.txn_words import opened_json
from penstock.client.topic_partition import TopicPartition
from penstock.diagnosis.findings import warn
from penstock.diagnosis.topic import Move, TopicHealth, topic_findings

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.admin.transactions import TransactionAdmin
    from penstock.diagnosis.findings import Finding
    from penstock.diagnosis.transactions import Holder


def tell(
    admin: "Admin", cluster: "ClusterAdmin", transactions: "TransactionAdmin", name: str, *, json: bool
) -> None:
    topic = health(admin, cluster, name)
    holders, about_holders = held_back(transactions, topic)
    findings = [*topic_findings(topic), *about_holders]
    if json:
        print_json(
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "offline": [partition.index for partition in topic.offline],
                "under_min_isr": [partition.index for partition in topic.short],
                "under_replicated": [partition.index for partition in topic.under_replicated],
                "moving": [
                    {
                        "partition": move.index,
                        "adding": list(move.adding),
                        "removing": list(move.removing),
                        "done_bytes": move.copied.done_bytes,
                        "total_bytes": move.copied.total_bytes,
                    }
                    for move in topic.moving
                ],
                "retired": [
                    {
                        "partition": retired.index,
                        "limit": retired.limit,
                        "into": retired.into,
                        "left": retired.left,
                        "hidden": retired.hidden,
                    }
                    for retired in topic.retired
                ],
                "held_back": [
                    {
                        "last_stable_offset": holder.held.last_stable_offset,
                        "high_watermark": holder.held.high_watermark,
                        **opened_json(holder.opened),
                    }
                    for holder in holders
                ],
                "findings": [finding.as_json() for finding in findings],
            }
        )
        return
    print_findings(findings)


def held_back(admin: "TransactionAdmin", topic: TopicHealth) -> "tuple[list[Holder], list[Finding]]":
    """Transactions that keep those who read what is committed from going on."""
    from penstock.client.raw.errors import RawError
    from penstock.diagnosis.transactions import holder_findings, look_at_holders

    led = [
        TopicPartition(topic.name, partition.index)
        for partition in topic.partitions
        if partition.leader in topic.live
    ]
    try:
        holders = look_at_holders(admin, led)
    except RawError as error:
        found = f"nobody can tell now whether a transaction holds readers back: {error}"
        return [], [warn("transaction", found, "ask again: `penstock txn find-hanging`")]
    return holders, holder_findings(holders, time.time_ns() // 1_000_000)


def health(admin: "Admin", cluster: "ClusterAdmin", name: str) -> TopicHealth:
    from penstock.client.admin.topics import RETIRE_TO
    from penstock.client.raw import RawError

    partitions = next(topic.partitions for topic in admin.topics() if topic.name == name)
    groups = admin.describe_groups([group.name for group in admin.groups()])
    moving, retired, unknown = [], [], ""
    try:
        found = cluster.look()
        for place, replicas in found.moving.items():
            if place.topic == name:
                moving.append(Move(place.partition, replicas.adding, replicas.removing, found.copied(place)))
        staying = admin.own_configs(name).get(RETIRE_TO)
        if staying is not None:
            retired = cluster.retired(found, name, int(staying))
    except RawError as error:
        unknown = str(error)
    return TopicHealth(
        name,
        partitions,
        frozenset(admin.live_brokers()),
        int(admin.setting_of_topic(name, "min.insync.replicas")),
        tuple(sorted(group.name for group in groups if name in group.topics)),
        tuple(moving),
        tuple(retired),
        unknown,
    )
