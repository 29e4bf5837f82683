"""What the command line makes of a cluster it looked at: shares, copies, progress."""

from dataclasses import replace

import pytest

from penstock.cli.errors import CommandError
from penstock.cli.moves import Emptying, share_for
from penstock.cli.topic_replicas import planned
from penstock.cli.verify import _print as print_verdicts
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas
from penstock.client.topic_partition import TopicPartition
from penstock.diagnosis.replica_verify import Verdict


def broker(
    number: int, state: BrokerState = BrokerState.IN_SERVICE, machine: str | None = None
) -> BrokerInfo:
    return BrokerInfo(number, "host", 9092, None, machine, state, False, 0, 0, 0, 0)


def cluster(
    *partitions: Replicas, brokers: int = 3, sizes: dict[int, dict[TopicPartition, int]] | None = None
) -> ClusterInfo:
    return ClusterInfo(
        "id",
        {number: broker(number) for number in range(1, brokers + 1)},
        {TopicPartition("orders", number): partition for number, partition in enumerate(partitions)},
        sizes or {},
    )


def led(*replicas: int) -> Replicas:
    return Replicas(replicas[0], replicas, replicas)


FIRST = TopicPartition("orders", 0)


def test_a_broker_is_given_its_share_of_replicas_and_leaders() -> None:
    found = cluster(led(1, 2), led(2, 1), led(1, 2), led(2, 1), led(1, 2), led(2, 1))
    targets = share_for(found, 3)
    assert len(targets) == 4, "a third of twelve"
    assert all(3 in target for target in targets.values())
    assert sum(target[0] == 3 for target in targets.values()) == 2
    assert share_for(found, 1) == {}, "it has more than its share"


def test_nothing_goes_to_a_broker_whose_machine_has_a_copy() -> None:
    found = cluster(led(1, 2), led(1, 2))
    brokers = dict(found.brokers)
    brokers[2], brokers[3] = broker(2, machine="a"), broker(3, machine="a")
    targets = share_for(replace(found, brokers=brokers), 3)
    assert all(2 not in target for target in targets.values())


@pytest.mark.parametrize(("count", "kept"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3))])
def test_a_topic_gets_more_or_fewer_copies(count: int, kept: tuple[int, ...]) -> None:
    targets = planned(cluster(led(1, 2)), "orders", count)
    assert targets.get(FIRST, (1, 2)) == kept


def test_the_leader_stays_when_copies_go() -> None:
    found = cluster(Replicas(3, (1, 2, 3), (2, 3)))
    assert planned(found, "orders", 1) == {FIRST: (3,)}
    assert planned(found, "orders", 2) == {FIRST: (2, 3)}


def test_more_copies_than_machines_are_refused() -> None:
    with pytest.raises(CommandError, match="there are 3"):
        planned(cluster(led(1)), "orders", 4)


def test_a_drain_is_done_when_nothing_is_left() -> None:
    emptying = Emptying(1)
    second = TopicPartition("orders", 1)
    sizes = {1: {FIRST: 100, second: 300}, 2: {FIRST: 100}, 3: {second: 0}}
    found = cluster(led(1, 2), led(1), sizes=sizes)
    assert emptying.progress(found) == (0, 400)
    moving = replace(led(1), replicas=(3, 1), adding=(3,), removing=(1,))
    sizes[3][second] = 150
    assert emptying.progress(cluster(led(1, 2), moving, sizes=sizes)) == (150, 400)
    assert emptying.progress(cluster(led(2, 3), led(3), sizes=sizes)) == (400, 400)


def test_those_on_their_way_do_not_count_as_missing() -> None:
    moving = Replicas(1, (1, 2, 3), (1, 2), adding=(3,))
    assert not moving.is_under_replicated
    assert cluster(moving).moving == {FIRST: moving}


def test_a_broker_is_not_empty_while_it_has_a_partition_that_metadata_hides() -> None:
    retired = TopicPartition("orders", 7)
    found = cluster(led(1, 2), sizes={3: {retired: 500}})
    assert found.on(3) == [retired]
    emptying = Emptying(3)
    assert emptying.progress(found) == (0, 500)
    assert emptying.progress(cluster(led(1, 2))) == (500, 500)


def test_internal_topics_that_lack_replicas_are_told_until_they_have_them() -> None:
    def lacking(replicas: Replicas, brokers: int = 3) -> dict[str, tuple[int, int]]:
        wanted = {"__consumer_offsets": 3}
        partitions = {
            TopicPartition("__consumer_offsets", 0): led(1, 2, 3),
            TopicPartition("__consumer_offsets", 1): replicas,
        }
        found = replace(cluster(brokers=brokers), partitions=partitions, wanted_replicas=wanted)
        return dict(found.incomplete)

    assert lacking(led(1, 2)) == {"__consumer_offsets": (2, 3)}
    on_its_way = Replicas(1, (1, 2, 3), (1, 2), adding=(3,))
    assert lacking(on_its_way) == {"__consumer_offsets": (2, 3)}
    assert lacking(led(1, 2, 3)) == {}
    assert lacking(led(1, 2), brokers=2) == {}, "there is no third broker that could be missed"
    assert cluster(led(1)).incomplete == {}, "somebody chose that"


def test_verify_says_one_line_for_a_broker_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = [Verdict(TopicPartition("orders", number)) for number in range(3)]
    for verdict in verdicts:
        verdict.unread[2] = "it is dead"
    verdicts[0].unread[3] = "it is dead"
    print_verdicts(verdicts)
    lines = [line for line in capsys.readouterr().out.splitlines() if "could not be read" in line]
    assert lines == [
        "broker 2 could not be read: it is dead (orders-0 and 2 more partitions)",
        "broker 3 could not be read: it is dead (orders-0)",
    ]
