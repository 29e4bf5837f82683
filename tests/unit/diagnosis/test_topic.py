"""What `penstock why TOPIC` says of replicas in each kind of trouble."""

from penstock.client.admin.cluster_info import Progress
from penstock.client.admin.retired_look import Retired
from penstock.client.admin.topics import PartitionInfo
from penstock.diagnosis.findings import Finding, Level
from penstock.diagnosis.topic import Move, TopicHealth, topic_findings

WHOLE = PartitionInfo(0, 1, (1, 2, 3), (1, 2, 3))
ALL = frozenset({1, 2, 3})


def told(*partitions: PartitionInfo, live: frozenset[int] = ALL, least: int = 2) -> dict[str, Finding]:
    return {
        finding.check: finding for finding in topic_findings(TopicHealth("orders", partitions, live, least))
    }


def test_a_topic_that_is_whole() -> None:
    found = told(WHOLE)
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert found["replicas"].found == "all are in sync"


def test_a_partition_that_nobody_leads_names_whom_to_start() -> None:
    lost = PartitionInfo(1, None, (2, 3, 1), (3,))
    found = told(WHOLE, lost, live=frozenset({1, 2}))["leader"]
    assert found.level is Level.FAIL
    assert found.found == "partition 1 cannot be written or read"
    assert found.advice.startswith("start broker 3: only who was in sync last")
    assert "brokers 1, 2 may lack some of it" in found.advice


def test_too_few_in_sync_refuse_acks_all() -> None:
    found = told(PartitionInfo(0, 1, (1, 2, 3), (1,)), live=frozenset({1}))
    assert found["in sync"].level is Level.FAIL
    assert "1 replica of 2 (min.insync.replicas)" in found["in sync"].found
    assert "bring back brokers 2, 3" in found["in sync"].advice
    assert found["replicas"].found == "its partition: brokers 2, 3 are not there"


def test_a_topic_with_fewer_replicas_than_it_must_have_in_sync_is_held_to_those_it_has() -> None:
    assert "in sync" not in told(PartitionInfo(0, 1, (1,), (1,)))


def test_who_is_there_but_behind_is_told_apart_from_who_is_gone() -> None:
    behind = PartitionInfo(0, 1, (1, 2, 3), (1, 2))
    assert told(behind)["replicas"].found == "its partition: broker 3 is there, but not in sync"
    assert "start broker 3" in told(behind, live=frozenset({1, 2}))["replicas"].advice


def test_leaders_away_from_home_are_mentioned() -> None:
    found = told(PartitionInfo(0, 2, (1, 2, 3), (1, 2, 3)), WHOLE)["preferred"]
    assert (found.level, found.found.startswith("partition 0: not led by the first")) == (Level.OK, True)


def test_replicas_on_their_way_are_shown_and_not_missed() -> None:
    coming = PartitionInfo(0, 1, (1, 2, 3, 4), (1, 2, 3))
    move = Move(0, (4,), (2,), Progress(512, 2048))
    topic = TopicHealth("orders", (coming, WHOLE), ALL | {4}, 2, moving=(move,))
    assert topic.under_replicated == []
    told = [finding for finding in topic_findings(topic) if finding.check == "moving"]
    assert [finding.found for finding in told] == [
        "partition 0: comes to broker 4, 512 B of 2.0 kB copied; leaves broker 2"
    ]
    behind = PartitionInfo(0, 1, (1, 2, 3, 4), (1, 2))
    lacking = TopicHealth("orders", (behind, WHOLE), ALL | {4}, 2, moving=(move,))
    (found,) = (finding for finding in topic_findings(lacking) if finding.check == "replicas")
    assert found.found == "partition 0: broker 3 is there, but not in sync"


def test_many_moves_are_counted() -> None:
    moves = tuple(Move(number, (3,), (), Progress(0, 10)) for number in range(7))
    topic = TopicHealth("orders", (WHOLE,), ALL, 2, moving=moves)
    told = [finding.found for finding in topic_findings(topic) if finding.check == "moving"]
    assert (len(told), told[5].startswith("and 2 partitions more")) == (6, True)


def test_retired_partitions_say_where_their_records_are() -> None:
    retired = (Retired(2, 100, 0, 7, hidden=False), Retired(3, 50, 1, 0, hidden=True))
    topic = TopicHealth("orders", (WHOLE,), ALL, 2, retired=retired)
    shown, other = (finding.found for finding in topic_findings(topic) if finding.check == "retired")
    assert (
        shown == "partition 2: read here below 100, from there on in partition 0; 7 offsets still to be moved"
    )
    assert other.startswith(
        "partition 3: read here below 50, from there on in partition 1; all of it is moved"
    )
    assert "hidden" in other


def test_what_nobody_can_tell_is_said() -> None:
    topic = TopicHealth("orders", (WHOLE,), ALL, 2, unknown="there is no controller now")
    (found,) = (finding for finding in topic_findings(topic) if finding.check == "moving")
    assert (found.level, found.found.endswith("there is no controller now")) == (Level.WARN, True)
