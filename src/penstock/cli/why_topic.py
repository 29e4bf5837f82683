"""`penstock why TOPIC`: why it is offline, under-replicated or refuses writes, and what mends it."""

from typing import TYPE_CHECKING

from penstock.cli.findings import print_findings
from penstock.cli.output import print_json
from penstock.diagnosis.topic import Move, TopicHealth, topic_findings

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin
    from penstock.client.admin.brokers import ClusterAdmin


def tell(admin: "Admin", cluster: "ClusterAdmin", name: str, *, json: bool) -> None:
    topic = health(admin, cluster, name)
    findings = topic_findings(topic)
    if json:
        print_json(
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "offline": [one.index for one in topic.offline],
                "under_min_isr": [one.index for one in topic.short],
                "under_replicated": [one.index for one in topic.under_replicated],
                "moving": [
                    {
                        "partition": one.index,
                        "adding": list(one.adding),
                        "removing": list(one.removing),
                        "done_bytes": one.copied.done_bytes,
                        "total_bytes": one.copied.total_bytes,
                    }
                    for one in topic.moving
                ],
                "retired": [
                    {
                        "partition": one.index,
                        "limit": one.limit,
                        "into": one.into,
                        "left": one.left,
                        "hidden": one.hidden,
                    }
                    for one in topic.retired
                ],
                "findings": [one.as_json() for one in findings],
            }
        )
        return
    print_findings(findings)


def health(admin: "Admin", cluster: "ClusterAdmin", name: str) -> TopicHealth:
    from penstock.client.admin.topics import RETIRE_TO
    from penstock.client.raw import RawError

    partitions = next(one.partitions for one in admin.topics() if one.name == name)
    groups = admin.describe_groups([one.name for one in admin.groups()])
    moving, retired, unknown = [], [], ""
    try:
        found = cluster.look()
        for place, one in found.moving.items():
            if place.topic == name:
                moving.append(Move(place.partition, one.adding, one.removing, found.copied(place)))
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
        tuple(sorted(one.name for one in groups if name in one.topics)),
        tuple(moving),
        tuple(retired),
        unknown,
    )
