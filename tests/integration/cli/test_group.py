"""`penstock group …` against a running broker: looking at groups, moving them, forgetting them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from tests.integration.commands import Done, penstock

from penstock import Admin, Consumer, Producer, Retry
from penstock.client.admin.admin import Move
from penstock.client.retry.notes import note
from penstock.client.retry.policy import retry_topic
from penstock.testing import BrokerProcess, broker

_names = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


class Topic:
    """Two partitions: ten messages, an hour apart, in the first; none in the second."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"orders-{next(_names)}"
        self.group = f"{self.name}-readers"
        self.now = datetime.now(UTC).replace(microsecond=0)
        Admin(bootstrap).create(self.name, partitions=2)
        with Producer(bootstrap) as producer:
            for number in range(10):
                at = self.now - timedelta(hours=10 - number)
                producer.send(self.name, str(number), partition=0, timestamp=at)

    def read(self, most: int) -> None:
        with Consumer(self.bootstrap, self.name, group=self.group) as consumer:
            for _ in range(most):
                assert consumer.receive() is not None

    def penstock(self, *arguments: str) -> Done:
        return penstock("group", *arguments, bootstrap=self.bootstrap)

    @property
    def committed(self) -> dict[int, int]:
        return {index: at for (_, index), at in Admin(self.bootstrap).committed(self.group).items()}


@pytest.fixture
def topic(running: BrokerProcess) -> Topic:
    return Topic(running.bootstrap)


def test_a_group_from_its_first_commit_to_its_deletion(topic: Topic) -> None:
    topic.read(4)
    listed = {group["group"]: group for group in topic.penstock("list", "--json").json}
    assert listed[topic.group] == {
        "group": topic.group,
        "state": "empty",
        "kind": "classic",
        "members": 0,
        "topics": [topic.name],
        "lag": 6,
        "retrying": 0,
    }
    described = topic.penstock("describe", topic.group, "--json").json
    assert (described["state"], described["lag"], described["members"]) == ("empty", 6, [])
    keys = ("topic", "partition", "committed", "earliest", "latest", "lag", "member")
    assert described["partitions"] == [
        dict(zip(keys, (topic.name, 0, 4, 0, 10, 6, None), strict=True)),
        dict(zip(keys, (topic.name, 1, None, 0, 0, 0, None), strict=True)),
    ]
    assert topic.penstock("delete", topic.group).code == 0
    assert topic.group not in topic.penstock("list").out
    gone = topic.penstock("describe", topic.group)
    assert (gone.code, gone.said()) == (
        1,
        f"there is no group {topic.group}: `penstock group list` shows those there are",
    )
    assert topic.penstock("delete", topic.group).said() == gone.said()


def test_tables_show_the_same(topic: Topic) -> None:
    with Consumer(
        topic.bootstrap, topic.name, group=topic.group, commit_every=0, config={"client.id": "till"}
    ) as consumer:
        assert [consumer.receive() is not None for _ in range(5)] == [True] * 5  # four are committed
        listed = topic.penstock("list").out.splitlines()
        assert [topic.group, "stable", "1", topic.name, "6", "0"] in [line.split() for line in listed]
        shown = topic.penstock("describe", topic.group).out.splitlines()
        (me,) = Admin(topic.bootstrap).describe_group(topic.group).members
    assert shown[0] == f"{topic.group}  stable  1 member  assigned by cooperative-sticky  lag 6"
    rows = [line.split() for line in shown]
    assert [topic.name, "0", "4", "10", "6", "till", me.host] in rows
    assert [topic.name, "1", "-", "0", "0", "till", me.host] in rows
    assert [me.id, "till", me.host, "-", "2"] in rows


def test_what_a_group_never_read_is_lag_and_told(topic: Topic) -> None:
    with Producer(topic.bootstrap) as producer:
        producer.send_many(topic.name, ["x"] * 7, partition=1).result()
    Admin(topic.bootstrap).reset_offsets(topic.group, topic.name, 4, partitions=[0])
    assert Admin(topic.bootstrap).describe_group(topic.group).lag == 13
    described = topic.penstock("describe", topic.group, "--json").json
    assert (described["lag"], described["never_read"]) == (13, 7)
    shown = topic.penstock("describe", topic.group).out
    assert [topic.name, "1", "-", "7", "7"] in [line.split()[:5] for line in shown.splitlines()]
    assert "never read: 7 of the lag, in 1 partition for which nothing was ever committed" in shown
    assert {group["group"]: group["lag"] for group in topic.penstock("list", "--json").json}[
        topic.group
    ] == 13


def test_what_waits_for_a_retry_is_seen_and_is_no_lag(topic: Topic) -> None:
    retry = Retry(attempts=3, backoff="3d")
    with Consumer(topic.bootstrap, topic.name, group=topic.group, retry=retry) as consumer:
        for _ in range(10):
            message = consumer.receive()
            assert message is not None
            with consumer.handling(message):
                if message.value in (b"3", b"4"):
                    raise ValueError("no")
    admin = Admin(topic.bootstrap)
    info = admin.describe_group(topic.group)
    assert (info.lag, info.retrying) == (0, 2)
    described = topic.penstock("describe", topic.group)
    waits = f"2 messages of {topic.name} waiting for another try, the next is due in 3.0 d"
    assert f"retries: {waits}" in described.out
    found = penstock("why", topic.group, "--over", "100ms", bootstrap=topic.bootstrap).out
    assert waits in found
    assert "skew" not in found
    (listed,) = (
        letters
        for letters in penstock("dlq", "list", "--json", bootstrap=topic.bootstrap).json
        if letters["topic"] == topic.name
    )
    (retries,) = admin.retries(topic.group)
    assert (listed["waiting"], listed["retrying"], listed["due_ms"]) == (0, 2, retries.due_ms)
    shown = penstock("dlq", "show", topic.name, "--group", topic.group, bootstrap=topic.bootstrap).out
    assert f"retries: {waits}" in shown


def test_a_message_that_is_tried_again_in_its_place_is_due_when_its_commit_says(topic: Topic) -> None:
    """As with `ordered_by_key`."""
    retries, admin = retry_topic(topic.name, topic.group), Admin(topic.bootstrap)
    admin.create(retries)
    with Producer(topic.bootstrap) as producer:
        headers = {"penstock-origin": f"{topic.name}/0/0", "penstock-due": "1000"}
        for _ in range(2):
            producer.send(retries, "x", headers=headers).result()
    admin.reset_offsets(topic.group, topic.name, 4, partitions=[0])
    assert [retry.due_ms for retry in admin.retries(topic.group)] == [1000]
    tried = note({"offset": 1, "failures": 2, "due": 5000}, [])
    admin.carry_out(topic.group, [Move(retries, 0, None, 1, tried)])
    assert [(retry.waiting, retry.due_ms) for retry in admin.retries(topic.group)] == [(1, 5000)]
    assert "due since " in topic.penstock("describe", topic.group).out


WAYS = {
    "--to-earliest": 0,
    "--to-latest": 10,
    "--to-offset 7": 7,
    "--to-offset 700": 10,
    "--shift-by 3": 7,
    "--shift-by -30": 0,
    "--to-time 150m": 8,
    "--to-datetime 1970-01-02T00:00:00+00:00": 0,
    "--to-timestamp 99999999999999": 10,
}


def test_every_way_to_reset(topic: Topic) -> None:
    admin = Admin(topic.bootstrap)
    for way, first in WAYS.items():
        admin.reset_offsets(topic.group, topic.name, 4, partitions=[0])
        done = topic.penstock("reset", topic.group, "--partition", "0", *way.split(), "--json").json
        moves = [{"topic": topic.name, "partition": 0, "before": 4, "after": first}]
        assert done == {"group": topic.group, "done": True, "partitions": moves}, way
        assert topic.committed == {0: first}, way


def test_a_dry_run_only_tells(topic: Topic) -> None:
    topic.read(4)
    planned = topic.penstock("reset", topic.group, "--shift-by", "-3", "--dry-run")
    assert [topic.name, "0", "4", "1"] in [line.split() for line in planned.out.splitlines()]
    assert "nothing was changed" in planned.out
    assert topic.committed == {0: 4}
    assert topic.penstock("reset", topic.group, "--shift-by", "-3").code == 0
    with Consumer(topic.bootstrap, topic.name, group=topic.group) as consumer:
        message = consumer.receive()
    assert message is not None
    assert message.value == b"1"


def test_without_a_topic_all_that_the_group_has_read_is_moved(topic: Topic) -> None:
    topic.read(4)
    other = Topic(topic.bootstrap)
    with Consumer(topic.bootstrap, other.name, group=topic.group) as consumer:
        assert consumer.receive() is not None
    done = topic.penstock("reset", topic.group, "--to-earliest")
    assert done.code == 0, done.err
    assert f"group {topic.group} goes on there in 4 partitions" in done.out
    assert [topic.name, "0", "4", "0"] in [line.split() for line in done.out.splitlines()]
    assert set(Admin(topic.bootstrap).committed(topic.group).values()) == {0}


def test_what_waits_for_its_retry_is_not_passed_over(topic: Topic) -> None:
    retry = Retry(attempts=2, backoff="1s")
    with Consumer(topic.bootstrap, topic.name, group=topic.group, retry=retry) as consumer:
        for _ in range(2):  # one of them waits for good
            message = consumer.receive()
            assert message is not None
            with consumer.handling(message):
                raise ValueError("no")
        consumer.commit()
        message = consumer.receive()
        while message is not None and message.topic == topic.name:
            message = consumer.receive()
    retries = f"{topic.name}.{topic.group}.retry"
    admin = Admin(topic.bootstrap)
    before = {place: at for place, at in admin.committed(topic.group).items() if place[0] == retries}
    assert before
    assert topic.penstock("reset", topic.group, "--to-latest").code == 0
    after = {place: at for place, at in admin.committed(topic.group).items() if place[0] == retries}
    assert after == before
    assert admin.committed(topic.group)[topic.name, 0] == 10


def test_what_was_never_committed_stays_so_in_a_shift(topic: Topic) -> None:
    topic.read(4)
    assert topic.penstock("reset", topic.group, "--shift-by", "-1").code == 0
    assert topic.committed == {0: 3}
    refused = topic.penstock(
        "reset", topic.group, "--topic", topic.name, "--partition", "1", "--shift-by", "1"
    )
    assert "nothing to shift from" in refused.said()


def test_a_group_can_be_put_somewhere_before_it_first_reads(topic: Topic) -> None:
    assert topic.penstock("reset", topic.group, "--topic", topic.name, "--to-offset", "6").code == 0
    assert topic.committed == {0: 6, 1: 0}


def test_a_group_with_members_is_left_alone(topic: Topic) -> None:
    with Consumer(topic.bootstrap, topic.name, group=topic.group, commit_every=0) as consumer:
        assert [consumer.receive() is not None for _ in range(3)] == [True] * 3
        for arguments in (
            ["reset", topic.group, "--topic", topic.name, "--to-latest"],
            ["reset", topic.group, "--to-latest", "--dry-run"],
            ["delete", topic.group],
        ):
            refused = topic.penstock(*arguments)
            assert refused.code == 1
            assert f"group {topic.group} has members at work: stop them first" in refused.said()
        assert topic.committed == {0: 2}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["reset", "G", "--topic", "T"], 2, "say where to: give one of --to-earliest"),
        (["reset", "G", "--topic", "T", "--to-latest", "--to-offset", "1"], 2, "give one of"),
        (["reset", "G", "--to-time", "soon"], 2, "--to-time 'soon' is not a time"),
        (["reset", "G", "--to-time", "9999999999999999999"], 2, "is not a time"),
        (["reset", "G", "--topic", "T", "--topic", "U", "--partition", "0", "--to-latest"], 2, "--topic"),
        (["reset", "G", "--topic", "absent", "--to-latest"], 1, "there is no topic absent"),
        (["reset", "G", "--topic", "T", "--partition", "9", "--to-latest"], 1, "has no partition 9"),
        (["reset", "G", "--topic", "T", "--shift-by", "1"], 1, "nothing to shift from"),
        (["reset", "G", "--to-latest"], 1, "there is no group"),
        (["describe", "G"], 1, "`penstock group list`"),
        (["delete", "G"], 1, "there is no group"),
        (["reset", "G", "--to-offset", "-1"], 2, "--to-offset"),
        (["list", "--bootstrap", "127.0.0.1:1"], 1, "penstock up"),
    ],
)
def test_refusals_say_what_to_do(topic: Topic, arguments: list[str], code: int, words: str) -> None:
    named = {"G": topic.group, "T": topic.name}
    done = topic.penstock(*(named.get(word, word) for word in arguments))
    assert (done.code, words in done.said()) == (code, True), done.err


def test_commits_for_a_deleted_topic_do_not_hide_the_others(topic: Topic) -> None:
    topic.read(4)
    other = Topic(topic.bootstrap)
    with Consumer(topic.bootstrap, other.name, group=topic.group) as consumer:
        assert consumer.receive() is not None
    Admin(topic.bootstrap).delete(other.name)
    described = topic.penstock("describe", topic.group, "--json").json
    assert {partition["topic"] for partition in described["partitions"]} == {topic.name}
    # What was committed for a topic goes with it, at once or when it expires.
    assert set(described["deleted_topics"]) <= {other.name}


def test_no_groups_is_said_and_internal_topics_are_shown_when_asked_for() -> None:
    with broker() as fresh:
        assert "no groups yet" in penstock("group", "list", bootstrap=fresh.bootstrap).out
        assert penstock("group", "list", "--json", bootstrap=fresh.bootstrap).json == []
        topic = Topic(fresh.bootstrap)
        topic.read(1)
        listed = penstock("topic", "list", bootstrap=fresh.bootstrap)
        assert topic.name in listed.out
        assert "__consumer_offsets" not in listed.out
        everything = penstock("topic", "list", "--internal", "--json", bootstrap=fresh.bootstrap)
        assert {"__consumer_offsets", topic.name} == {load["name"] for load in json.loads(everything.out)}
