"""`penstock.Consumer` against a live broker."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.raw import wait_until
from tests.integration.sdk.conftest import Cluster

from penstock import Admin, AsyncConsumer, ClientError, Consumer, Message, Producer
from penstock.client.errors import UnreachableError
from penstock.client.serializers import SerializationError

NewTopic = Callable[[int], str]


def fill(cluster: Cluster, topic: str, values: Iterable[object], **more: object) -> None:
    with Producer(cluster.bootstrap) as producer:
        producer.send_many(topic, values, **more).result()  # type: ignore[arg-type]


def some(messages: Iterable[Message], count: int) -> list[Message]:
    found = []
    for message in messages:
        found.append(message)
        if len(found) == count:
            break
    return found


def numbers(messages: Iterable[Message]) -> list[int]:
    return [int(message.value) for message in messages]


def test_a_message_has_everything_its_producer_gave_it(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    with Producer(cluster.bootstrap) as producer:
        sent = producer.send(
            topic,
            {"a": 1},
            key="k",
            tags=["x", "y"],
            labels={"n": "v"},
            headers={"h": b"1"},
            timestamp=1234567,
        ).result()
        producer.send(topic, None, key="k").result()
    with Consumer(cluster.bootstrap, topic, deserializer="json") as consumer:
        message, tombstone = some(consumer, 2)
    assert message.value == {"a": 1}
    assert message.raw_value == b'{"a":1}'
    assert (message.key, message.topic, message.partition, message.offset) == (b"k", topic, 0, 0)
    assert (message.tags, message.labels, message.id) == (("x", "y"), {"n": "v"}, sent.id)
    assert (message.timestamp, message.time) == (1234567, datetime.fromtimestamp(1234.567, UTC))
    assert message.header("h") == b"1"
    assert (message.attempt, message.origin) == (1, (topic, 0, 0))
    assert tombstone.value is None


def test_without_a_group_all_partitions_are_read_and_nothing_is_committed(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    fill(cluster, topic, [str(number) for number in range(300)], keys=[str(number) for number in range(300)])
    for _ in range(2):
        with Consumer(cluster.bootstrap, topic) as consumer:
            assert sorted(numbers(some(consumer, 300))) == list(range(300))
            assert consumer.assignment == [(topic, index) for index in range(3)]


def test_a_group_goes_on_where_it_left(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(10)))
    for first in (0, 4):
        with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
            assert numbers(some(consumer, 4)) == list(range(first, first + 4))
    assert Admin(cluster.bootstrap).committed(topic) == {(topic, 0): 8}


def test_a_message_whose_body_raised_comes_again(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(10)))

    def work() -> None:
        with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
            for message in consumer:
                if message.value == b"3":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
        assert numbers(some(consumer, 7)) == list(range(3, 10))


def test_at_most_once_gives_back_what_a_clean_end_did_not_hand_out(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(10)))
    for first in (0, 4):
        with Consumer(cluster.bootstrap, topic, group=topic, delivery="at-most-once") as consumer:
            assert numbers(some(consumer, 4)) == list(range(first, first + 4))


@pytest.mark.parametrize("group", [True, False], ids=["in a group", "alone"])
def test_reading_begins_where_start_says(cluster: Cluster, new_topic: NewTopic, group: bool) -> None:
    topic = new_topic(1)
    now = datetime.now(UTC).replace(microsecond=0)
    with Producer(cluster.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, str(number), timestamp=now - timedelta(hours=10 - number)).result()
    for index, (start, first) in enumerate(
        [
            ("earliest", 0),
            (now - timedelta(hours=4), 6),
            (timedelta(hours=3.5), 7),
            (5, 5),
            ({0: 8}, 8),
            ({(topic, 0): 9}, 9),
        ]
    ):
        name = f"{topic}-{index}" if group else None
        with Consumer(cluster.bootstrap, topic, group=name, start=start) as consumer:  # type: ignore[arg-type]
            assert numbers(some(consumer, 1)) == [first]


def test_latest_sees_only_what_comes_after(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(5)))
    with Consumer(cluster.bootstrap, topic, start="latest") as consumer:
        # Where the end was is found out in the background: what comes before that is not seen.
        while (message := consumer.receive(1.0)) is None:
            fill(cluster, topic, ["5"])
        assert message.value == b"5"


def test_seek_pause_and_resume(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    fill(cluster, topic, map(str, range(10)), partition=0)
    fill(cluster, topic, map(str, range(100, 110)), partition=1)
    with Consumer(cluster.bootstrap, topic) as consumer:
        assert len(some(consumer, 20)) == 20
        consumer.seek(topic, 0, 7)
        assert numbers(some(consumer, 3)) == [7, 8, 9]
        consumer.pause(topic, 1)
        consumer.seek(topic, 0, "earliest")
        consumer.seek(topic, 1, "earliest")
        assert numbers(some(consumer, 10)) == list(range(10))
        assert consumer.receive(0.5) is None
        consumer.resume(topic, 1)
        assert numbers(some(consumer, 10)) == list(range(100, 110))


def test_a_pause_in_the_middle_of_a_batch_hands_out_nothing_more(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(50)))
    with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
        assert numbers(some(consumer, 5)) == list(range(5))
        consumer.pause()
        assert consumer.receive(1.0) is None
        consumer.resume()
        assert numbers(some(consumer, 45)) == list(range(5, 50))


def test_batches_are_committed_whole(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(10)))
    with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
        sizes = []
        for batch in consumer.batches(size=4, wait=0.2):
            sizes.append(len(batch))
            if sum(sizes) == 10:
                break
        assert sizes == [4, 4, 2]
    fill(cluster, topic, map(str, range(10, 16)))

    def work() -> None:
        with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
            for batch in consumer.batches(size=3, wait=60):
                if numbers(batch) == [13, 14, 15]:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert Admin(cluster.bootstrap).committed(topic) == {(topic, 0): 13}


def test_tables(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, [{"n": number} for number in range(5)], tags=["t"], labels={"a": "b"})
    with Consumer(cluster.bootstrap, topic) as consumer:
        table = next(consumer.tables(size=5, wait=60))
    assert table["value"].to_pylist() == [f'{{"n":{number}}}'.encode() for number in range(5)]
    assert table["offset"].to_pylist() == list(range(5))
    assert table["tags"].to_pylist() == [["t"]] * 5
    assert table["labels"].to_pylist() == [[("a", "b")]] * 5
    with Consumer(cluster.bootstrap, topic, deserializer="json") as consumer:
        table = next(consumer.tables(size=5, wait=60))
    assert table["value"].to_pylist() == [{"n": number} for number in range(5)]


def test_members_share_the_partitions_and_miss_nothing(cluster: Cluster, new_topic: NewTopic) -> None:
    """One joins, one leaves in the middle: everything is worked on, and commits follow the partitions."""
    topic = new_topic(4)
    total = 2000
    seen: list[int] = []
    told = threading.Condition()

    def work(consumer: Consumer) -> None:
        with consumer:
            for message in consumer:
                with told:
                    seen.append(int(message.value))
                    told.notify()

    first = Consumer(cluster.bootstrap, topic, group=topic)
    second = Consumer(cluster.bootstrap, topic, group=topic)
    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in (first, second)]
    threads[0].start()
    with Producer(cluster.bootstrap) as producer:
        for number in range(total):
            producer.send(topic, str(number), key=str(number))
            if number == total // 3:
                producer.flush()
                threads[1].start()
                wait_until(
                    lambda: len(second.assignment) == 2 and len(first.assignment) == 2, "both have joined"
                )
            if number == 2 * total // 3:
                producer.flush()
                first.stop()
                threads[0].join()
    with told:
        told.wait_for(lambda: len(set(seen)) == total)
    second.stop()
    threads[1].join()
    assert len(seen) == total, "a clean rebalance brings nothing twice"
    assert sum(Admin(cluster.bootstrap).committed(topic).values()) == total


LOOP = """
import sys
from penstock import Consumer
with Consumer(sys.argv[1], sys.argv[2], group=sys.argv[2], commit_every=1000) as consumer:
    for message in consumer:
        print("begin", message.value.decode(), flush=True)
        sys.stdin.readline()
        print("end", message.value.decode(), flush=True)
print("left", flush=True)
"""


def test_sigterm_finishes_the_body_commits_and_leaves(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(5)))
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, cluster.bootstrap, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "begin 0\n"
    process.send_signal(signal.SIGTERM)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.read().split() == ["end", "0", "left"]
    assert process.wait() == 0
    process.stdin.close()
    process.stdout.close()
    found = Admin(cluster.bootstrap).describe_group(topic)
    assert found.members == ()
    assert [(offset.committed, offset.lag) for offset in found.offsets] == [(1, 4)]


def test_coroutines_consume(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    fill(cluster, topic, map(str, range(20)))

    async def work(group: str | None) -> list[int]:
        found: list[int] = []
        async with AsyncConsumer(cluster.bootstrap, topic, group=group) as consumer:
            async for message in consumer:
                found.append(int(message.value))
                if len(found) == 10:
                    break
        return found

    assert asyncio.run(work(None)) == list(range(10))
    assert asyncio.run(work(topic)) == list(range(10))
    assert asyncio.run(work(topic)) == list(range(10, 20))


def test_wrong_use_and_bad_luck_are_one_line(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    for make, said in [
        (lambda: Consumer("127.0.0.1:1", topic), "nothing answers"),
        (lambda: some(Consumer(cluster.bootstrap, "nowhere", group="g"), 1), "there is no topic nowhere"),
        (lambda: some(Consumer(cluster.bootstrap, "nowhere"), 1), "there is no topic nowhere"),
        (lambda: Consumer(cluster.bootstrap, []), "no topics"),
        (lambda: Consumer(cluster.bootstrap, topic, config={"no.such": 1}), "config"),
    ]:
        with pytest.raises(ClientError) as caught:
            make()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(UnreachableError):
        Admin("127.0.0.1:1")
    fill(cluster, topic, ["not json"])
    with Consumer(cluster.bootstrap, topic, deserializer="json") as consumer:
        (message,) = some(consumer, 1)
        with pytest.raises(SerializationError, match="cannot be deserialised"):
            _ = message.value


def test_admin_shows_and_moves_groups(cluster: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    admin = Admin(cluster.bootstrap)
    fill(cluster, topic, map(str, range(10)), partition=0)
    with Consumer(cluster.bootstrap, topic, group=topic) as consumer:
        assert len(some(consumer, 5)) == 5
        assert topic in [group.name for group in admin.groups()]
        found = admin.describe_group(topic)
        assert [member.partitions for member in found.members] == [((topic, 0), (topic, 1))]
    assert admin.describe_group(topic).lag == 5
    assert admin.reset_offsets(topic, topic, "earliest") == {0: 0, 1: 0}
    assert admin.reset_offsets(topic, topic, 7, partitions=[0]) == {0: 7}
    assert admin.reset_offsets(topic, topic, datetime.now(UTC) - timedelta(days=1)) == {0: 0, 1: 0}
    assert admin.reset_offsets(topic, topic, "latest") == {0: 10, 1: 0}
    assert admin.describe_group(topic).lag == 0
    assert admin.delete_records(topic, {0: 4}) == {0: 4}
    admin.delete_group(topic)
    with pytest.raises(ClientError, match=f"there is no group {topic}"):
        admin.describe_group(topic)


@pytest.mark.parametrize("began", [True, False], ids=["a group that has read", "a new one"])
def test_a_partition_added_after_a_reset_is_read_from_its_first_message(
    cluster: Cluster, new_topic: NewTopic, began: bool
) -> None:
    """Also where reading begins at the end: all that is in it came since the group had its place."""
    topic, admin = new_topic(1), Admin(cluster.bootstrap)
    if began:
        with Consumer(cluster.bootstrap, topic, group=topic, start="latest") as consumer:
            wait_until(lambda: consumer.receive(0.1) is None and consumer.joined, "it has joined")
    admin.reset_offsets(topic, topic, "latest")
    admin.add_partitions(topic, 2)
    fill(cluster, topic, ["1"], partition=1)
    with Consumer(cluster.bootstrap, topic, group=topic, start="latest") as consumer:
        fill(cluster, topic, ["2"], partition=0)
        assert sorted(numbers(some(consumer, 2))) == [1, 2]
