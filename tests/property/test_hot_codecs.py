"""The flattened Produce and Fetch codecs say what the generated ones say, in every version, and refuse damage."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.hot_messages import (
    Blob,
    fetch_answers,
    fetch_requests,
    ids,
    int16,
    int32,
    int64,
    leaders,
    names,
    places,
    produce_requests,
    single_fetches,
)

from penstock.services.fetching.found import Found
from penstock.wire.kafka import fetch, produce
from penstock.wire.kafka.generated import fetch as generated_fetch
from penstock.wire.kafka.generated import produce as generated_produce
from penstock.wire.kafka.leaders import Leader, NodeEndpoint
from penstock.wire.kafka.primitives import DecodeError

PRODUCE_VERSIONS = range(produce.MIN_VERSION, produce.MAX_VERSION + 1)
FETCH_VERSIONS = range(fetch.MIN_VERSION, fetch.MAX_VERSION + 1)
NOT_LEADER, FENCED = 6, 74
HUGE = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0"]


def check_endpoints(told: list[Any], named: list[Leader], known: dict[int, NodeEndpoint]) -> None:
    """Each leader that was named can be found, once, if it is anywhere."""
    found = {
        endpoint.node_id: NodeEndpoint(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        for endpoint in told
    }
    assert len(found) == len(told)
    assert found == {leader.id: known[leader.id] for leader in named if leader.id in known}


def topic_key(topic: Any, version: int, since: int) -> bytes:
    if version >= since:
        return bytes(topic.topic_id)
    return str(topic.name if hasattr(topic, "name") else topic.topic).encode()


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_produce_requests_decode_as_generated(version: int, data: st.DataObject) -> None:
    request = data.draw(produce_requests(version))
    frame = memoryview(b"head" + generated_produce.encode_request(request, version))
    transactional_id, acks, timeout_ms, topics = produce.decode_request(frame, 4, version)
    assert (transactional_id, acks, timeout_ms) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
    )
    told = [
        (
            name,
            [(number, None if start < 0 else bytes(frame[start:end])) for number, start, end in partitions],
        )
        for name, partitions in topics
    ]
    assert told == [
        (
            topic_key(topic, version, produce.TOPIC_IDS_SINCE),
            [(p.index, None if p.records is None else bytes(p.records)) for p in topic.partition_data],
        )
        for topic in request.topic_data
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_produce_responses_are_what_generated_codecs_read(version: int, data: st.DataObject) -> None:
    key = ids if version >= produce.TOPIC_IDS_SINCE else names.map(str.encode)
    refused = st.builds(produce.RecordErrors, names, st.lists(st.tuples(int32, names), max_size=3))
    answers = st.tuples(int32, int16, int64, int64, int64, st.none() | names | refused)
    topics = data.draw(st.lists(st.tuples(key, st.lists(answers, max_size=3)), max_size=3))
    frame = produce.encode_response(77, version, topics, 5)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    position = 9 if version >= produce.FLEXIBLE_SINCE else 8
    response, end = generated_produce.decode_response(frame, position, version)
    assert end == len(frame)
    assert response.throttle_time_ms == 5
    for (name, partitions), topic in zip(topics, response.responses, strict=True):
        assert topic_key(topic, version, produce.TOPIC_IDS_SINCE) == name
        for answer, told in zip(partitions, topic.partition_responses, strict=True):
            number, error, base, append_time, log_start, message = answer
            assert (told.index, told.error_code, told.base_offset) == (number, error, base)
            assert told.log_append_time_ms == append_time
            assert told.log_start_offset == (log_start if version >= 5 else -1)
            records: list[tuple[int, str]] = []
            if isinstance(message, produce.RecordErrors):
                message, records = message
            assert told.error_message == (message if version >= 8 else None)
            listed = [
                (record_error.batch_index, record_error.batch_index_error_message)
                for record_error in told.record_errors
            ]
            assert listed == (records if version >= 8 else [])


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_produce_responses_name_the_leader_where_it_is_another(version: int, data: st.DataObject) -> None:
    key = ids if version >= produce.TOPIC_IDS_SINCE else names.map(str.encode)
    codes = st.sampled_from([0, 3, NOT_LEADER])
    answers = st.tuples(int32, codes, int64, int64, int64, st.none() | names)
    topics = data.draw(st.lists(st.tuples(key, st.lists(answers, max_size=3)), max_size=3))
    known = {
        (name, partition[0]): data.draw(leaders) for name, partitions in topics for partition in partitions
    }
    by_id = version >= produce.TOPIC_IDS_SINCE

    def leader_of(name: bytes, number: int, is_id: bool) -> Leader:
        assert is_id == by_id
        return known[name, number]

    where = data.draw(places())
    frame = produce.encode_response(77, version, topics, 5, leader_of, where.get)
    position = 9 if version >= produce.FLEXIBLE_SINCE else 8
    response, end = generated_produce.decode_response(frame, position, version)
    assert end == len(frame)
    named = []
    for (name, partitions), topic in zip(topics, response.responses, strict=True):
        for answer, told in zip(partitions, topic.partition_responses, strict=True):
            expected = (-1, -1)
            if answer[1] == NOT_LEADER and version >= produce.LEADERS_SINCE:
                named.append(known[name, answer[0]])
                expected = named[-1][:2]
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == expected
            assert told.error_message == (answer[5] if version >= 8 else None)
    check_endpoints(response.node_endpoints, named, where)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_fetch_requests_decode_as_generated(version: int, data: st.DataObject) -> None:
    request = data.draw(fetch_requests(version) | single_fetches(version))
    frame = memoryview(b"head" + generated_fetch.encode_request(request, version))
    told = fetch.decode_request(frame, 4, version)
    replica = (request.replica_id, -1)
    if version >= 15:
        replica = (request.replica_state.replica_id, request.replica_state.replica_epoch)
    assert (told.replica_id, told.replica_epoch) == replica
    assert (told.max_wait_ms, told.min_bytes, told.max_bytes, told.isolation_level) == (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    )
    assert (told.session_id, told.session_epoch) == (request.session_id, request.session_epoch)
    assert told.rack == request.rack_id.encode()
    assert told.topics == [
        (
            topic_key(topic, version, fetch.TOPIC_IDS_SINCE),
            [
                (
                    p.partition,
                    p.current_leader_epoch,
                    p.fetch_offset,
                    p.last_fetched_epoch,
                    p.log_start_offset,
                    p.partition_max_bytes,
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    assert told.forgotten == [
        (topic_key(topic, version, fetch.TOPIC_IDS_SINCE), topic.partitions)
        for topic in request.forgotten_topics_data
    ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_fetch_responses_are_what_generated_codecs_read(version: int, data: st.DataObject) -> None:
    key = ids if version >= fetch.TOPIC_IDS_SINCE else names.map(str.encode)
    some = st.lists(st.tuples(key, st.lists(fetch_answers(version), max_size=3)), max_size=3)
    single = st.tuples(key, st.tuples(fetch_answers(version)).map(list)).map(lambda topic: [topic])
    topics = data.draw(some | single)
    where = data.draw(places())
    known = {(name, answer.partition): data.draw(leaders) for name, answers in topics for answer in answers}

    def leader_of(name: bytes, number: int, is_id: bool) -> Leader:
        assert is_id == (version >= fetch.TOPIC_IDS_SINCE)
        return known[name, number]

    parts = fetch.encode_response(
        77,
        version,
        topics,
        error=3,
        session_id=9,
        throttle_ms=5,
        leader_of=leader_of,
        endpoint_of=where.get,
    )
    frame = b"".join(part.data if isinstance(part, Blob) else bytes(part) for part in parts)  # type: ignore[call-overload]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    position = 9 if version >= fetch.FLEXIBLE_SINCE else 8
    response, end = generated_fetch.decode_response(frame, position, version)
    assert end == len(frame)
    assert response.throttle_time_ms == 5
    assert (response.error_code, response.session_id) == ((3, 9) if version >= 7 else (0, 0))
    named = []
    for (name, answers), topic in zip(topics, response.responses, strict=True):
        assert topic_key(topic, version, fetch.TOPIC_IDS_SINCE) == name
        for answer, told in zip(answers, topic.partitions, strict=True):
            assert (told.partition_index, told.error_code) == (answer.partition, answer.error)
            assert (told.high_watermark, told.last_stable_offset) == answer[2:4]
            assert told.log_start_offset == (answer.log_start_offset if version >= 5 else -1)
            assert bytes(told.records or b"") == (
                answer.records.data if isinstance(answer.records, Blob) else b""
            )
            aborted = told.aborted_transactions
            assert (
                None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted]
            ) == answer.aborted
            assert told.preferred_read_replica == answer.preferred_replica
            assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (
                answer.diverging or (-1, -1)
            )
            leader = Leader(-1, -1)
            if answer.error in (NOT_LEADER, FENCED) and version >= fetch.ENDPOINTS_SINCE:
                leader = known[name, answer.partition]
                named.append(leader)
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == leader
    check_endpoints(response.node_endpoints, named, where)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@settings(max_examples=100)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_damaged_produce_frames_raise_only_decode_errors(
    version: int, data: st.DataObject, seed: int
) -> None:
    frame = _damaged(generated_produce.encode_request(data.draw(produce_requests(version)), version), seed)
    try:
        *_, topics = produce.decode_request(memoryview(frame), 0, version)
    except DecodeError:
        return
    for _, partitions in topics:
        for _, start, end in partitions:
            assert -1 <= start <= end <= len(frame)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 15, 18])
@settings(max_examples=100)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_damaged_fetch_frames_raise_only_decode_errors(version: int, data: st.DataObject, seed: int) -> None:
    request = data.draw(fetch_requests(version) | single_fetches(version))
    frame = _damaged(generated_fetch.encode_request(request, version), seed)
    try:
        told = fetch.decode_request(memoryview(frame), 0, version)
    except DecodeError:
        return
    assert sum(len(partitions) for _, partitions in told.topics) <= len(frame)


def _damaged(frame: bytes, seed: int) -> bytes:
    """Cut off, with bytes changed, or with a huge number planted."""
    rng = random.Random(seed)
    out = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        match rng.randrange(3):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at : at + 4] = rng.choice(HUGE)
            case 2:
                del out[at:]
        if not out:
            break
    return bytes(out)


@pytest.mark.parametrize("version", range(produce.FLEXIBLE_SINCE, produce.MAX_VERSION + 1))
@settings(max_examples=60)
@given(data=st.data())
def test_the_short_cut_for_one_batch_agrees_with_the_long_way(version: int, data: st.DataObject) -> None:
    request = data.draw(produce_requests(version))
    frame = memoryview(generated_produce.encode_request(request, version))
    single = produce.decode_single(frame, 0, version)
    transactional_id, acks, _, topics = produce.decode_request(frame, 0, version)
    one_batch = len(topics) == 1 and len(topics[0][1]) == 1 and topics[0][1][0][1] >= 0
    if single is None:
        assert transactional_id is not None or not one_batch or len(topics[0][0]) > 100
        return
    assert transactional_id is None
    assert single == (acks, topics[0][0], *topics[0][1][0])


@pytest.mark.parametrize("version", range(produce.FLEXIBLE_SINCE, produce.MAX_VERSION + 1))
@given(data=st.data())
def test_the_short_cut_answers_as_the_long_way_does(version: int, data: st.DataObject) -> None:
    topic = data.draw(ids if version >= produce.TOPIC_IDS_SINCE else names.map(str.encode))
    partition, offset, append_time, log_start = (data.draw(s) for s in (int32, int64, int64, int64))
    answer = (partition, 0, offset, append_time, log_start, None)
    assert produce.encode_single(
        7, version, topic, partition, offset, append_time, log_start
    ) == produce.encode_response(7, version, [(topic, [answer])])


def test_one_batch_takes_the_short_cut() -> None:
    data = generated_produce.PartitionProduceData(index=3, records=b"x" * 500)
    topic = generated_produce.TopicProduceData(name="orders", partition_data=[data])
    request = generated_produce.ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    frame = memoryview(generated_produce.encode_request(request, 9))
    single = produce.decode_single(frame, 0, 9)
    assert single is not None
    assert single[:3] == (-1, b"orders", 3)
    assert frame[single[3] : single[4]] == b"x" * 500


@pytest.mark.parametrize("version", range(fetch.FLEXIBLE_SINCE, fetch.MAX_VERSION + 1))
def test_a_fetch_of_one_partition_takes_the_short_cuts(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_decode", None)
    monkeypatch.setattr(fetch, "_append_answer", None)
    wanted = generated_fetch.FetchTopic(
        topic="orders",
        topic_id=bytes(16),
        partitions=[generated_fetch.FetchPartition(partition=3, fetch_offset=7)],
    )
    request = generated_fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[wanted])
    told = fetch.decode_request(memoryview(generated_fetch.encode_request(request, version)), 0, version)
    assert [(topic.partition, topic.offset) for topic in told.topics[0][1]] == [(3, 7)]
    answer = Found(3, 0, 8, 8, 0, Blob(b"x" * 300), 300)
    assert len(fetch.encode_response(7, version, [(b"orders", [answer])])) == 3


def test_a_name_that_is_no_text_is_read_as_kafka_reads_it() -> None:
    wanted = generated_fetch.FetchTopic(topic="orders", partitions=[generated_fetch.FetchPartition()])
    frame = generated_fetch.encode_request(generated_fetch.FetchRequest(topics=[wanted]), 12)
    told = fetch.decode_request(memoryview(frame.replace(b"orders", b"\xfforder")), 0, 12)
    assert told.topics[0][0] == "\ufffdorder".encode()
