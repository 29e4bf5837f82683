"""How far retention may go in a retired partition, and in one that takes its records."""

import pytest
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.records.relay import RelayKind, RelayPlace, producer_fields, relayed_by, retired_source
from penstock.replication.partition import Partition
from penstock.replication.retirement import retire, retirement_of
from penstock.replication.route_registry import RelayRoute
from penstock.replication.table import Topic
from penstock.services.maintenance.retention import retention_of
from penstock.services.relay.positions import keep_positions, oldest_position
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

LATER_MS = NOW_MS + 10_000
RETIRED = 2


class NoSyncer:
    def request(self, partition: Partition) -> None:
        pass


ROUTE = RelayRoute(RelayKind.RETIRED, bytes(16), RETIRED, bytes(16), 0)


def a_topic(index: int, **overrides: str) -> tuple[Topic, Partition]:
    log = opened(MemFiles(), Settings(segment_bytes=len(a_batch()))).log
    partition = Partition("t", bytes(16), index, log, 1, NoSyncer(), sync_before_ack=False)
    settings = {
        "penstock.ack.after": "written",
        "retention.ms": "1000",
        "internal.segment.bytes": str(len(a_batch())),
    }
    given = settings | {name.replace("_", "."): value for name, value in overrides.items()}
    config = TopicConfig.resolve(given, BrokerConfig.resolve({"log.dirs": "/data"}))
    topic = Topic("t", bytes(16), config, {index: partition}, count=3)
    return topic, partition


def fill(partition: Partition, count: int) -> None:
    for _ in range(count):
        append(partition.log, a_batch())
    partition.write_held()


@pytest.mark.parametrize(
    ("moved", "leads", "limit"), [(-1, True, 3), (5, True, 5), (8, True, 6), (-1, False, 6)]
)
def test_nothing_goes_that_is_still_to_be_moved(moved: int, leads: bool, limit: int) -> None:
    topic, partition = a_topic(RETIRED)
    fill(partition, 6)
    retire(partition, 3, None, NOW_MS)
    retirement_of(partition).moved = moved
    partition.is_leader = leads
    assert retention_of(topic, partition)[1] == limit


def test_a_follower_gives_up_what_its_leader_moved_and_deleted() -> None:
    """A leader tells its followers of what readers may see: the high watermark of one stays at the limit for ever."""
    topic, partition = a_topic(RETIRED)
    fill(partition, 3)
    for _ in range(5):
        append(partition.log, a_batch())
    sync(partition.log, checkpoint=True)
    partition.is_leader = False
    retire(partition, 3, None, NOW_MS)
    assert partition.high_watermark == 3
    partition.log.advance_start(6)  # where its leader's log begins by now
    limits, limit = retention_of(topic, partition)
    assert (limits, limit) == (RetentionLimits(-1, -1), 6)
    assert partition.log.expire(limits, limit, NOW_MS) is not None
    assert partition.log.segments[0].base_offset == 6


def test_once_readers_have_nothing_left_what_is_moved_goes_at_once() -> None:
    topic, partition = a_topic(RETIRED, retention_ms="-1")
    fill(partition, 6)
    retire(partition, 3, None, NOW_MS)
    assert retention_of(topic, partition)[0].retention_ms == -1
    partition.log.advance_start(3)
    assert retention_of(topic, partition)[0] == RetentionLimits(0)


def test_what_readers_cannot_see_does_not_push_out_what_they_can() -> None:
    topic, partition = a_topic(RETIRED, retention_bytes="100")
    fill(partition, 6)
    assert retention_of(topic, partition)[0].retention_bytes == 100
    retire(partition, 3, None, NOW_MS)
    assert retention_of(topic, partition)[0].retention_bytes == 100 + 3 * len(a_batch())


def test_the_last_word_of_a_relay_is_said_again_before_it_goes() -> None:
    topic, partition = a_topic(0)
    log = partition.log
    append(log, a_batch(producer=producer_fields(RETIRED, 1, 0)))
    fill(partition, 3)
    limits, limit_offset = retention_of(topic, partition)
    assert limit_offset == 4
    assert oldest_position([ROUTE], partition) == 0
    assert keep_positions([ROUTE], partition, limits, limit_offset, LATER_MS) == 0
    assert log.producers.relays.by_source[retired_source(RETIRED)].place == RelayPlace(1, 0)
    assert oldest_position([ROUTE], partition) == 4
    # It is the end of the log now: the next time everything before it goes.
    limits, limit_offset = retention_of(topic, partition)
    assert keep_positions([ROUTE], partition, limits, limit_offset, LATER_MS) == 4
    sync(log, checkpoint=True)
    assert log.expire(limits, 4, LATER_MS) is not None
    again = opened(MemFiles()).log
    for segment in log.segments:
        for _, header in segment.walk(0, segment.size, wait=True):
            again.producers.record(header, header.base_offset)
            assert relayed_by(header).place == RelayPlace(1, 0)
    assert again.producers.relays.by_source[retired_source(RETIRED)].place == RelayPlace(1, 0)


def test_a_word_stays_until_the_one_that_says_it_again_is_committed() -> None:
    """Else a replica that is built anew meanwhile, and then elected, knows of no relay, and takes everything again."""
    topic, partition = a_topic(0)
    append(partition.log, a_batch(producer=producer_fields(RETIRED, 1, 0)))
    fill(partition, 3)
    limits, limit_offset = retention_of(topic, partition)
    committed = partition.limits.high_watermark
    assert keep_positions([ROUTE], partition, limits, limit_offset, LATER_MS) == 0
    end = partition.log.end_offset
    partition.limits.move(committed)  # its followers are away
    assert keep_positions([ROUTE], partition, limits, limit_offset, LATER_MS) == 0
    assert partition.log.end_offset == end  # nor is it said a third time
    partition.limits.move(partition.log.end())
    assert keep_positions([ROUTE], partition, *retention_of(topic, partition), LATER_MS) == 4


def test_relays_that_are_over_hold_nothing_back() -> None:
    topic, partition = a_topic(0)
    append(partition.log, a_batch(producer=producer_fields(RETIRED, 1, 0)))
    fill(partition, 3)
    limits, limit_offset = retention_of(topic, partition)
    assert keep_positions([], partition, limits, limit_offset, LATER_MS) == 4
