"""`penstock why TOPIC`: why it is offline, under-replicated or refuses writes, and what mends it."""

from typing import TYPE_CHECKING

from penstock.cli.check_topic import TopicHealth, topic_findings
from penstock.cli.findings import print_findings
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from penstock.client.admin import Admin


def tell(admin: "Admin", name: str, *, json: bool) -> None:
    topic = health(admin, name)
    findings = topic_findings(topic)
    if json:
        print_json(
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "offline": [one.index for one in topic.offline],
                "under_min_isr": [one.index for one in topic.short],
                "under_replicated": [one.index for one in topic.under_replicated],
                "findings": [one.as_json() for one in findings],
            }
        )
        return
    print_findings(findings)


def health(admin: "Admin", name: str) -> TopicHealth:
    partitions = next(one.partitions for one in admin.topics() if one.name == name)
    groups = admin.describe_groups([one.name for one in admin.groups()])
    return TopicHealth(
        name,
        partitions,
        frozenset(admin.live_brokers()),
        int(admin.setting_of_topic(name, "min.insync.replicas")),
        tuple(sorted(one.name for one in groups if name in one.topics)),
    )
