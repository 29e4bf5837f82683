"""Where a replay goes on: behind everything that an attempt before it has sent, committed by now or not."""

from typing import Any

import pytest
from tests.unit.client.raw.fake import QUICK, FakePeer, fetched, offset_found

from penstock.client.raw import EARLIEST, RawClient, TimedOutError, TopicPartition
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.records.relay import stamp_relayed
from penstock.spark.pipelines.replaying.errors import DoubledError, OtherRecordsError, RetiredTargetError
from penstock.spark.pipelines.replaying.headers import FROM, OFFSET
from penstock.spark.pipelines.replaying.tail import Tail, look
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import offset_for_leader_epoch as epochs
from penstock.wire.kafka.messages import version_range
from penstock.wire.kafka.retired_specs import LIMIT

AT = TopicPartition("t", 0)
SOURCE = "orders/1"


def log_end(end: int) -> epochs.OffsetForLeaderEpochResponse:
    answer = epochs.EpochEndOffset(partition=0, leader_epoch=3, end_offset=end)
    topic = epochs.OffsetForLeaderTopicResult(topic="t", partitions=[answer])
    return epochs.OffsetForLeaderEpochResponse(topics=[topic])


def replayed(first: int, end: int, original: int = 100) -> bytes:
    """`original`: how much larger the offsets were that they had."""
    records = [
        Record(offset, 1, None, b"v", ((FROM, SOURCE.encode()), (OFFSET, b"%d" % (offset + original))))
        for offset in range(first, end)
    ]
    return bytes(build_batch(records, BatchOptions(base_offset=first)))


def peer_with(peer: FakePeer, appended: list[int], committed: list[int], limit: int = -1) -> FakePeer:
    """Ends of the leader's log and of what readers see, one after the other; the last of each stays."""
    left = list(committed)

    def offsets(request: Any) -> Any:
        if request.topics[0].partitions[0].timestamp == LIMIT:
            return offset_found(limit, timestamp=0)
        if request.topics[0].partitions[0].timestamp == EARLIEST:
            return offset_found(0)
        return offset_found(left.pop(0) if len(left) > 1 else left[0])

    peer.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = version_range(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    peer.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, *map(log_end, appended))
    peer.on(ApiKey.LIST_OFFSETS, offsets)
    peer.on(ApiKey.FETCH, lambda _: fetched(replayed(0, left[0])))
    return peer


@pytest.mark.parametrize(
    ("appended", "committed", "end"),
    [
        ([5], [5], 5),
        ([8], [5, 5, 8], 8),  # the killed attempt's last batch is at the leader only
        ([8, 9, 12], [5, 6, 8], 8),  # others write meanwhile
        ([8, 5], [5], 5),  # and was lost with that leader
    ],
)
def test_what_is_not_committed_yet_is_waited_for(appended: list[int], committed: list[int], end: int) -> None:
    with FakePeer() as peer, RawClient(peer_with(peer, appended, committed).bootstrap, QUICK) as client:
        assert look(client, AT, SOURCE, append=False) == Tail(end, end - 1 + 100)


def test_what_is_never_committed_is_said() -> None:
    options = QUICK.__class__(retry_backoff_ms=1, retry_backoff_max_ms=1, retries_max=3)
    with (
        FakePeer() as peer,
        RawClient(peer_with(peer, [8], [5]).bootstrap, options) as client,
        pytest.raises(TimedOutError, match="waiting for what is in t-0 to be committed"),
    ):
        look(client, AT, SOURCE, append=False)


def test_a_target_that_is_being_retired_is_refused() -> None:
    """What was written to it is in another partition: at its end, which readers see, it would be written again."""
    with (
        FakePeer() as peer,
        RawClient(peer_with(peer, [5], [5], limit=5).bootstrap, QUICK) as client,
        pytest.raises(RetiredTargetError, match="t-0 is being retired"),
    ):
        look(client, AT, SOURCE, append=True)


def test_what_was_replayed_to_a_partition_that_is_retired_says_nothing_of_the_one_it_went_to() -> None:
    """Offsets of the one were taken for those of the other, and rows up to there were left out."""
    moved = bytearray(replayed(3, 8))
    stamp_relayed(memoryview(moved), 1, 0, 0)
    log = replayed(0, 3) + bytes(moved)
    with FakePeer() as peer, RawClient(peer_with(peer, [8], [8]).bootstrap, QUICK) as client:
        peer.on(ApiKey.FETCH, lambda _: fetched(log))
        assert look(client, AT, SOURCE, append=True) == Tail(8, 102)
        with pytest.raises(OtherRecordsError, match="t-0 holds other records"):
            look(client, AT, SOURCE, append=False)


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("again", [95, 97, 99])
def test_what_two_runs_wrote_at_once_is_no_end_to_go_on_from(append: bool, again: int) -> None:
    log = replayed(0, 5) + replayed(5, 8, original=again)
    with FakePeer() as peer, RawClient(peer_with(peer, [8], [8]).bootstrap, QUICK) as client:
        peer.on(ApiKey.FETCH, lambda _: fetched(log))
        with pytest.raises(DoubledError, match="t-0 holds records of this replay twice") as raised:
            look(client, AT, SOURCE, append=append)
    assert "--append" not in str(raised.value)
    assert "at offset 5 " in str(raised.value)
