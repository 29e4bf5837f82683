"""Fetching over a scripted broker: every error that an answer can carry, and every way an answer can fail to come."""

import dataclasses
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.client.raw.fake import (
    CLOSE,
    QUICK,
    TOPIC_ID,
    FakePeer,
    batch_at,
    fetched,
    offset_found,
)

from penstock.client.raw import (
    AbortedRange,
    BrokerError,
    CorruptDataError,
    Fetched,
    OffsetOutOfRangeError,
    RawClient,
    TimedOutError,
    TopicPartition,
    TopicRecreatedError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedError,
)
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import metadata

AT = TopicPartition("t", 0)
FIRST, SECOND, THIRD = batch_at(2, [b"a", b"b"]), batch_at(4, [b"c"]), batch_at(5, [b"d", b"e"])


@pytest.fixture
def peer() -> Iterator[FakePeer]:
    with FakePeer() as fake:
        yield fake


def read(peer: FakePeer, start: int = 2, end: int = 7, **options: Any) -> list[Fetched]:
    with RawClient(peer.bootstrap, dataclasses.replace(QUICK, **options)) as client:
        return list(client.fetch(AT, start, end))


def records(answers: list[Fetched]) -> list[bytes]:
    return [bytes(answer.records) for answer in answers]


def asked_offsets(peer: FakePeer) -> list[int]:
    return [asked.message.topics[0].partitions[0].fetch_offset for asked in peer.asked[ApiKey.FETCH]]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version(peer: FakePeer, version: int) -> None:
    peer.versions[ApiKey.FETCH] = (version, version)
    peer.on(ApiKey.FETCH, fetched(FIRST + SECOND, aborted=[(9, 4)]), fetched(THIRD))
    (first, second) = read(peer, committed=True)
    assert (bytes(first.records), bytes(second.records)) == (FIRST + SECOND, THIRD)
    assert first.aborted == (AbortedRange(9, 4),)
    assert second.aborted == ()
    assert (first.log_start, first.high_watermark, first.last_stable) == (2 if version >= 5 else -1, 100, 90)
    (asked, _) = peer.asked[ApiKey.FETCH]
    assert (asked.version, asked.message.isolation_level, asked.message.session_epoch) == (version, 1, -1)
    assert asked.message.topics[0].topic_id == (TOPIC_ID.bytes if version >= 13 else bytes(16))
    assert asked.message.topics[0].partitions[0].current_leader_epoch == (3 if version >= 9 else -1)


def test_topics_without_ids_are_fetched_by_name(peer: FakePeer) -> None:
    peer.versions[ApiKey.METADATA] = (0, 9)
    peer.on(ApiKey.FETCH, fetched(FIRST))
    assert records(read(peer, end=4)) == [FIRST]
    assert peer.asked[ApiKey.FETCH][0].version == 12


def test_aborted_ranges_are_for_those_who_read_committed(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST, aborted=[(9, 2)]))
    (answer,) = read(peer, end=4)
    assert answer.aborted == ()


def test_the_next_request_is_under_way_before_the_present_answer_is_used(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST), fetched(SECOND), fetched(THIRD))
    with RawClient(peer.bootstrap, QUICK) as client:
        stream = client.fetch(AT, 2, 7)
        assert bytes(next(stream).records) == FIRST
        peer.wait_for_asked(ApiKey.FETCH, 2)
        assert asked_offsets(peer) == [2, 4]
        assert records(list(stream)) == [SECOND, THIRD]
    assert asked_offsets(peer) == [2, 4, 5]


def test_a_cut_last_batch_comes_again_whole(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST + SECOND[:-1]), fetched(SECOND + THIRD))
    assert records(read(peer)) == [FIRST, SECOND + THIRD]
    assert asked_offsets(peer) == [2, 4]


def test_a_first_batch_larger_than_asked_for_makes_the_request_grow(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST[:40]), fetched(FIRST), fetched(SECOND + THIRD))
    assert records(read(peer, fetch_bytes=40)) == [FIRST, SECOND + THIRD]
    sizes = [asked.message.topics[0].partitions[0].partition_max_bytes for asked in peer.asked[ApiKey.FETCH]]
    assert sizes == [40, len(FIRST), 40]


def test_a_batch_that_never_comes_whole_is_damage(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST[:-1]))
    with pytest.raises(CorruptDataError, match=r"t-0 is damaged at offset 2 .*never comes whole"):
        read(peer)


def test_gaps_of_compaction(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(THIRD))
    assert records(read(peer, start=2, end=7)) == [THIRD]
    assert read(peer, start=2, end=5) == [], "nothing is left before the end"
    peer.on(ApiKey.FETCH, fetched(FIRST + THIRD))
    assert records(read(peer, start=2, end=5)) == [FIRST]


def test_empty_answers_are_waited_out(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(None), fetched(b""), fetched(FIRST), fetched(b""), fetched(SECOND + THIRD))
    assert records(read(peer, retries_max=0)) == [FIRST, SECOND + THIRD], "to wait is not to try again"
    assert asked_offsets(peer) == [2, 2, 2, 4, 4]


def test_waiting_ends_with_the_time_there_is(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(b""))
    with pytest.raises(TimedOutError, match="can be read to offset 100 only, 7 was asked for"):
        read(peer, api_timeout_ms=50)
    with pytest.raises(TimedOutError, match="can be read to offset 90 only"):
        read(peer, api_timeout_ms=50, committed=True)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_a_passing_error_is_tried_again_after_a_look_at_the_metadata(peer: FakePeer, code: ErrorCode) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST), fetched(error=code), fetched(error=code), fetched(SECOND + THIRD))
    assert records(read(peer)) == [FIRST, SECOND + THIRD]
    assert asked_offsets(peer) == [2, 4, 4, 4]
    assert len(peer.asked[ApiKey.METADATA]) == 3


def test_a_moved_leader_is_followed(peer: FakePeer) -> None:
    with FakePeer(node=2) as other:
        peer.nodes[2] = other

        def moved(_: Any) -> Any:
            peer.leaders["t"] = {0: 2}
            return fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)

        peer.on(ApiKey.FETCH, fetched(FIRST), moved)
        other.on(ApiKey.FETCH, fetched(SECOND + THIRD))
        assert records(read(peer)) == [FIRST, SECOND + THIRD]
        assert asked_offsets(other) == [4]


def test_a_lost_connection_goes_on_at_the_right_offset(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, CLOSE, fetched(FIRST), CLOSE, CLOSE, fetched(SECOND), b"\xff" * 8, fetched(THIRD))
    assert records(read(peer)) == [FIRST, SECOND, THIRD]
    assert asked_offsets(peer) == [2, 2, 4, 4, 4, 5, 5]


def test_a_lost_broker_is_given_up_in_the_end() -> None:
    with FakePeer() as peer:
        peer.on(ApiKey.FETCH, fetched(FIRST), CLOSE)
        client = RawClient(peer.bootstrap, dataclasses.replace(QUICK, api_timeout_ms=300))
        stream = client.fetch(AT, 2, 7)
        assert bytes(next(stream).records) == FIRST
    with client, pytest.raises(UnreachableError, match=r"reading t-0 .*gave up after .*penstock doctor"):
        next(stream)


def test_retries_are_counted(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(TimedOutError, match="gave up after 3 tries"):
        read(peer, retries_max=2)
    assert len(peer.asked[ApiKey.FETCH]) == 3


def test_an_offset_out_of_range_tells_the_range(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    peer.on(ApiKey.LIST_OFFSETS, offset_found(40), offset_found(90))
    with pytest.raises(OffsetOutOfRangeError, match="retention has removed it") as caught:
        read(peer)
    assert (caught.value.offset, caught.value.log_start, caught.value.end) == (2, 40, 90)
    asked = [request.message.topics[0].partitions[0].timestamp for request in peer.asked[ApiKey.LIST_OFFSETS]]
    assert asked == [-2, -1]


def test_an_offset_that_is_in_range_after_all_is_tried_again(peer: FakePeer) -> None:
    out = fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    peer.on(ApiKey.LIST_OFFSETS, offset_found(0), offset_found(90), offset_found(0), offset_found(90))
    peer.on(ApiKey.FETCH, out, fetched(FIRST + SECOND + THIRD))
    assert records(read(peer)) == [FIRST + SECOND + THIRD]


def test_damage_that_stays_is_named(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST), fetched(error=ErrorCode.CORRUPT_MESSAGE))
    with pytest.raises(CorruptDataError, match="damaged at offset 4") as caught:
        read(peer)
    assert (caught.value.at, caught.value.offset) == (AT, 4)
    assert asked_offsets(peer) == [2, 4, 4, 4]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (FIRST[:8] + b"\xff\xff\xff\xff" + FIRST[12:], CorruptDataError, "a batch length of -1"),
        (FIRST[:16] + b"\x01" + FIRST[17:], UnsupportedError, "old format 1"),
        (batch_at(0, [b"old"]), CorruptDataError, "ends before 1"),
    ],
)
def test_what_is_no_batch_is_named(peer: FakePeer, data: bytes, error: type[Exception], message: str) -> None:
    peer.on(ApiKey.FETCH, fetched(data))
    with pytest.raises(error, match=message):
        read(peer)


def test_an_error_that_stays_is_raised_at_once(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED; ask who runs") as caught:
        read(peer)
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    peer.on(ApiKey.FETCH, fetched(error=999))
    with pytest.raises(BrokerError, match="error 999"):
        read(peer)


def test_a_topic_made_anew_is_another_one(peer: FakePeer) -> None:
    def remade(_: Any) -> Any:
        peer.topic_ids["t"] = uuid.UUID(int=8)
        return fetched(error=ErrorCode.UNKNOWN_TOPIC_ID)

    peer.on(ApiKey.FETCH, fetched(FIRST), remade)
    with pytest.raises(TopicRecreatedError, match="made anew") as caught:
        read(peer)
    assert (caught.value.expected, caught.value.found) == (TOPIC_ID, uuid.UUID(int=8))
    with RawClient(peer.bootstrap, QUICK) as client, pytest.raises(TopicRecreatedError):
        next(client.fetch(AT, 0, 1, topic_id=TOPIC_ID))


def test_a_deleted_topic_is_unknown(peer: FakePeer) -> None:
    def deleted(_: Any) -> Any:
        peer.leaders.clear()
        return fetched(error=ErrorCode.UNKNOWN_TOPIC_ID)

    peer.on(ApiKey.FETCH, fetched(FIRST), deleted)
    with pytest.raises(UnknownTopicError, match="no topic t"):
        read(peer)


def test_a_topic_that_brokers_learn_of_late(peer: FakePeer) -> None:
    unknown = metadata.MetadataResponse(
        topics=[metadata.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")]
    )
    peer.on(ApiKey.METADATA, unknown, unknown, peer._metadata)
    peer.on(ApiKey.FETCH, fetched(FIRST))
    assert records(read(peer, end=4)) == [FIRST]


def test_a_dropped_stream_leaves_the_connection_usable(peer: FakePeer) -> None:
    peer.on(ApiKey.FETCH, fetched(FIRST), fetched(SECOND), fetched(THIRD))
    peer.on(ApiKey.LIST_OFFSETS, offset_found(7))
    with RawClient(peer.bootstrap, QUICK) as client:
        stream = client.fetch(AT, 2, 7)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert client.offsets({AT: -1})[AT].offset == 7
    assert peer.connections == 1


def test_whether_an_offset_is_served(peer: FakePeer) -> None:
    """An empty answer is an answer: the reader may wait there. What is refused for a moment only is asked again."""
    moved, out = (
        fetched(error=code) for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE)
    )
    peer.on(ApiKey.FETCH, moved, fetched(), fetched(THIRD), out)
    peer.on(ApiKey.LIST_OFFSETS, offset_found(40), offset_found(90))
    with RawClient(peer.bootstrap, QUICK) as client:
        assert [client.serves(AT, 2) for _ in range(3)] == [True, True, False]
