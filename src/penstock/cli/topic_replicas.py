"""More or fewer copies of a topic: planned here, carried out by the controller, watched until it is done."""

import time
from collections import Counter
from typing import TYPE_CHECKING

import typer

from penstock.cli.command import Session, say_error
from penstock.cli.errors import INTERRUPTED, CommandError
from penstock.core.text import count_text

if TYPE_CHECKING:
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.admin.cluster_info import ClusterInfo
    from penstock.client.topic_partition import TopicPartition

_POLL_SECONDS = 0.5


def set_replicas(session: Session, topic: str, count: int) -> None:
    """Returns when every partition has so many, in sync."""
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.connect import reach

    reach(session.bootstrap)
    with ClusterAdmin(session.bootstrap) as admin:
        found = admin.look()
        targets = planned(found, topic, count)
        if targets:
            refused = admin.reassign(targets)
            if refused:
                place, why = next(iter(refused.items()))
                raise CommandError(f"{place} cannot have {count_text(count, 'replica')}: {why}")
            try:
                _until_done(session, admin, topic)
            except KeyboardInterrupt:
                say_error("the moves go on without us; `penstock status` shows how far they are")
                raise typer.Exit(INTERRUPTED) from None


def planned(found: "ClusterInfo", topic: str, count: int) -> "dict[TopicPartition, tuple[int, ...]]":
    """Where the replicas of a topic should be, of those partitions that have more or fewer than so many."""
    from penstock.client.admin.cluster_info import BrokerState
    from penstock.controller.placement import BrokerLocation, best, machine_count

    takers = [broker.id for broker in found.brokers.values() if broker.state is BrokerState.IN_SERVICE]
    stands = {
        broker_info.id: BrokerLocation(broker_info.rack, broker_info.machine)
        for broker_info in found.brokers.values()
    }
    most = machine_count(takers, stands)
    if count > most:
        raise CommandError(
            f"{count_text(count, 'replica')} need as many machines with a broker in service, and there "
            f"{'is' if most == 1 else 'are'} {most}: see `penstock broker-admin list`"
        )
    loads = Counter(replica for each in found.partitions.values() for replica in each.target)
    targets = {}
    for place, partition in found.partitions.items():
        if place.topic != topic or len(partition.target) == count:
            continue
        # The leader stays, and those in sync before the others; their order says who is preferred.
        staying = sorted(
            partition.target, key=lambda each: (each != partition.leader, each not in partition.in_sync)
        )[:count]
        target = [each for each in partition.target if each in staying]
        while len(target) < count:
            chosen = best(target, takers, stands, loads)
            if chosen is None:
                raise CommandError(f"{place} has no other machine to go to: see `penstock broker-admin list`")
            target.append(chosen)
            loads[chosen] += 1
        targets[place] = tuple(target)
    return targets


def _until_done(session: Session, admin: "ClusterAdmin", topic: str) -> None:
    from penstock.cli.progress import Bar

    with Bar(f"copying {topic}", quiet=session.json) as bar:
        while True:
            found = admin.look()
            moving = [place for place in found.moving if place.topic == topic]
            if not moving:
                return
            copied = [found.copied(place) for place in moving]
            bar.show(
                sum(progress.done_bytes for progress in copied),
                sum(progress.total_bytes for progress in copied),
                f"{count_text(len(moving), 'partition')} to go",
            )
            time.sleep(_POLL_SECONDS)
