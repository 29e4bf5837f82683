"""One connection: versions, tickets, and the ways it breaks."""

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from tests.unit.client.raw.fake import CLOSE, QUICK, SILENCE, FakePeer, fetched, offset_found, produced

from penstock.client.raw.errors import ConnectionLostError, UnsupportedError
from penstock.client.raw.link import Link
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchRequest
from penstock.wire.kafka.generated.list_offsets import ListOffsetsRequest
from penstock.wire.kafka.generated.metadata import MetadataRequest
from penstock.wire.kafka.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ASK = MetadataRequest(allow_auto_topic_creation=False)


@contextmanager
def connected(peer: FakePeer, **options: Any) -> Iterator[Link]:
    with closing(Link(("127.0.0.1", peer.port), dataclasses.replace(QUICK, **options))) as link:
        yield link


def test_the_highest_version_that_both_know() -> None:
    with FakePeer() as peer:
        peer.versions[ApiKey.FETCH] = (4, 11)
        peer.versions[ApiKey.LIST_OFFSETS] = (1, 99)
        with connected(peer) as link:
            assert link.version(ApiKey.FETCH) == 11
            assert link.version(ApiKey.FETCH, at_most=9) == 9
            assert link.version(ApiKey.LIST_OFFSETS) == 11
            with pytest.raises(UnsupportedError, match="knows FETCH in versions 4 to 11, 12 is needed"):
                link.version(ApiKey.FETCH, at_least=12)
            with pytest.raises(UnsupportedError, match="newer broker"):
                link.version(ApiKey.SHARE_FETCH)


@pytest.mark.parametrize("newest", [0, 2])
def test_an_old_broker_is_asked_again_in_its_version(newest: int) -> None:
    with FakePeer() as peer:
        peer.versions[ApiKey.API_VERSIONS] = (0, newest)
        with connected(peer) as link:
            assert [asked.version for asked in peer.asked[ApiKey.API_VERSIONS]] == [newest]
            assert link.version(ApiKey.METADATA) == 13


def test_answers_are_given_by_ticket() -> None:
    with FakePeer() as peer:
        peer.on(ApiKey.LIST_OFFSETS, *(offset_found(number) for number in range(4)))
        with connected(peer) as link:
            tickets = [link.send(ApiKey.LIST_OFFSETS, 6, ListOffsetsRequest()) for _ in range(4)]
            link.forget(tickets[0])
            answers = [link.response(tickets[number]) for number in (2, 1)]
            link.forget(tickets[3])
            assert [answer.topics[0].partitions[0].offset for answer in answers] == [2, 1]
            # The forgotten ones are not kept for anybody.
            link.call(ApiKey.METADATA, 12, ASK)
            assert link._arrived == {}


def test_nothing_listens() -> None:
    with FakePeer() as peer:
        address = ("127.0.0.1", peer.port)
    with pytest.raises(ConnectionLostError, match=r"cannot connect to 127.0.0.1:.*refused"):
        Link(address, QUICK)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (CLOSE, "closed it"),
        (b"\x7f\xff\xff\xff", "nonsense: a response of 2147483647 bytes"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x63\x00", "nonsense: a response to 99"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x07", "nonsense"),
    ],
)
def test_a_broken_connection_is_lost_for_all(answer: object, message: str) -> None:
    with FakePeer() as peer:
        peer.on(ApiKey.METADATA, answer)
        with connected(peer) as link:
            other = link.send(ApiKey.METADATA, 12, ASK)
            with pytest.raises(ConnectionLostError, match=message):
                link.response(other)
            assert not link.usable
            for attempt in (lambda: link.response(other), lambda: link.take(other)):
                with pytest.raises(ConnectionLostError, match=message):
                    attempt()
            with pytest.raises(ConnectionLostError, match=message):
                link.send(ApiKey.METADATA, 12, ASK)


def test_silence_ends_the_connection() -> None:
    with FakePeer() as peer:
        peer.on(ApiKey.METADATA, SILENCE)
        with connected(peer, request_timeout_ms=200) as link:
            with pytest.raises(ConnectionLostError, match=r"no answer in 0\.2 s"):
                link.call(ApiKey.METADATA, 12, ASK)
            assert not link.usable


def test_a_peer_that_must_be_read_before_it_reads_on() -> None:
    """Both sides are full: one that only wrote would wait for ever."""
    large, records = fetched(b"x" * 20_000_000), b"y" * 30_000_000
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    with FakePeer() as peer:
        peer.on(ApiKey.FETCH, large)
        peer.on(ApiKey.PRODUCE, produced(5))
        with connected(peer) as link:
            reading = link.send(ApiKey.FETCH, 12, FetchRequest())
            writing = link.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=1, topic_data=[topic]))
            assert link.response(writing).responses[0].partition_responses[0].base_offset == 5
            assert len(link.response(reading).responses[0].partitions[0].records) == 20_000_000
        assert peer.asked[ApiKey.PRODUCE][0].message.topic_data[0].partition_data[0].records == records
