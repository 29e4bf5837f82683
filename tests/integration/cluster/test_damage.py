"""A replica's disk is not what it was: whatever is missing or wrong on it comes from the leader again."""

import pytest
from tests.integration.cluster.harness import Cluster, flip_a_byte

from penstock.testing.process import BrokerStartError


def test_a_follower_with_a_wiped_disk_gets_everything_again(three: Cluster) -> None:
    with three.load() as load:
        follower = three.followers()[0]
        three.broker(follower).kill()
        three.wipe(follower)
        load.until_more(100)
        three.broker(follower).start()
        three.until_whole()
    load.report().check()
    three.until_replicas_are_equal()


@pytest.mark.soak
def test_a_follower_with_a_corrupted_segment_cuts_it_and_fetches_the_rest(three: Cluster) -> None:
    with three.load() as load:
        load.until_more(200)
        follower = three.followers()[0]
        three.broker(follower).kill()
        segment = three.segments(follower)[-1]
        flip_a_byte(segment, segment.stat().st_size // 2)
        load.until_more(100)
        three.broker(follower).start()
        three.until_whole()
    load.report().check()
    three.until_replicas_are_equal()


def test_another_broker_with_the_same_number_is_refused(three: Cluster) -> None:
    with three.load() as load:
        number = three.leader()
        with pytest.raises(
            BrokerStartError, match=f"broker {number} is registered with another data directory"
        ):
            three.processes.make(number, folder="another").start()
        load.until_more(100)
        assert three.leader() == number
    found = load.report()
    found.check()


@pytest.mark.soak
def test_a_topic_made_again_while_a_broker_was_down_shows_nothing_of_the_old_one(three: Cluster) -> None:
    """What the broker still has belongs to another topic, although the name is the same."""
    with three.load() as load:
        load.until_more(100)
    load.report().check()
    away = three.followers()[0]
    three.broker(away).kill()
    three.until(lambda: all(away not in partition.isr for partition in three.partitions()), "it is missed")
    three.delete(three.topic)
    three.until(
        lambda: three.topic not in {topic.name for topic in three.metadata().topics}, "the topic is gone"
    )
    three.create(three.topic, replicas=2)
    with three.load() as again:
        again.until_more(100)
        three.broker(away).start()
        three.reassign([[1, 2, 3]] * three.partition_count)
        three.until_whole()
        again.until_more(100)
    again.report().check()
    three.until_replicas_are_equal()
