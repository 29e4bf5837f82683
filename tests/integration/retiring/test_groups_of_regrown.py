"""A partition is retired, removed and made again: a group that began at the end misses nothing of the new one (R7)."""

from contextlib import suppress

from tests.integration.commands import penstock
from tests.integration.raw import wait_until

from penstock import Admin, Consumer, Producer
from penstock.client.errors import ClientError
from penstock.testing import broker

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "penstock.retire.check.interval.ms": "100"}
TOPIC, GROUP = "t", "g"


def send(bootstrap: str, values: list[bytes], partition: int) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(TOPIC, value, partition=partition).result()


def received(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        message = consumer.receive(30)
        assert message is not None, f"nothing came behind {values}"
        values.append(message.value)
    return values


def is_removed(admin: Admin) -> bool:
    with suppress(ClientError):  # it is gone, or about to be
        admin.delete_records(TOPIC, {1: -1})  # what retention would do in its time
    # What was committed in a partition that is not there is not listed.
    return list(admin.committed(GROUP)) == [(TOPIC, 0)]


def test_a_group_that_began_at_the_end_reads_all_of_a_partition_that_was_made_again() -> None:
    with broker(SETTINGS) as process:
        admin = Admin(process.bootstrap)
        admin.create(TOPIC, partitions=2, configs={"penstock.retire.grace.ms": "0"})
        send(process.bootstrap, [b"before"], 1)
        with Consumer(process.bootstrap, TOPIC, group=GROUP, start="latest", commit_every=0) as consumer:
            wait_until(lambda: not consumer.receive(0.1) and admin.committed(GROUP) != {}, "where it begins")
            send(process.bootstrap, [b"old"], 1)
            assert received(consumer, 1) == [b"old"]
        admin.retire_partitions(TOPIC, 1)
        wait_until(lambda: is_removed(admin), "the partition to be removed")
        admin.alter_configs(TOPIC, {}, ["penstock.retire.to"])
        admin.add_partitions(TOPIC, 2)
        send(process.bootstrap, [b"new 1", b"new 2"], 1)
        with Consumer(process.bootstrap, TOPIC, group=GROUP, start="latest", commit_every=0) as consumer:
            assert received(consumer, 2) == [b"new 1", b"new 2"]


def taken(bootstrap: str, count: int) -> None:
    with Consumer(bootstrap, TOPIC, group=GROUP, commit_every=0) as consumer:
        received(consumer, count)


def test_nothing_is_waited_for_or_missed_where_the_new_partition_is_empty() -> None:
    """Writers left something in the old one, which was moved: the new one begins behind that."""
    with broker(SETTINGS) as process:
        admin = Admin(process.bootstrap)
        admin.create(TOPIC, partitions=2, configs={"penstock.retire.grace.ms": "0"})
        send(process.bootstrap, [b"both"], 0)
        send(process.bootstrap, [b"x"] * 6, 1)
        taken(process.bootstrap, 7)
        moved = 0
        with Producer(process.bootstrap, config={"topic.metadata.refresh.interval.ms": 100_000}) as producer:
            producer.send(TOPIC, b"x", partition=1).result()
            admin.retire_partitions(TOPIC, 1)
            with suppress(ClientError):
                for _ in range(5):
                    producer.send(TOPIC, b"moved", partition=1).result()
                    moved += 1
        assert moved
        taken(process.bootstrap, 1 + moved)
        wait_until(lambda: is_removed(admin), "the partition to be removed")
        admin.alter_configs(TOPIC, {}, ["penstock.retire.to"])
        admin.add_partitions(TOPIC, 2)
        wait_until(lambda: len(admin.committed(GROUP)) == 2, "the new partition")
        assert admin.committed(GROUP)[TOPIC, 1] > 7
        read = penstock("consume", TOPIC, "--group", GROUP, "--no-follow", bootstrap=process.bootstrap)
        assert (read.code, read.out) == (0, "")
        assert admin.describe_group(GROUP).lag == 0
        why = penstock("why", GROUP, bootstrap=process.bootstrap)
        assert "unread" not in why.out
