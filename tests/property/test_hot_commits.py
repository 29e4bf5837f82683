"""The flattened OffsetCommit says what the generated codec says in every version it takes, and leaves it the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.kafka import offset_commit as hot
from penstock.wire.kafka.generated import offset_commit as generated
from penstock.wire.kafka.headers import encode_response_header
from penstock.wire.kafka.primitives import DecodeError

VERSIONS = range(hot.FLEXIBLE_SINCE, generated.MAX_VERSION + 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20) | st.sampled_from(["", "g" * 126, "g" * 127, "g" * 200])


@st.composite
def partitions(draw: st.DrawFn) -> list[generated.OffsetCommitRequestPartition]:
    count = draw(st.integers(0, 4) | st.sampled_from([126, 127]))
    return [
        generated.OffsetCommitRequestPartition(
            partition_index=draw(int32),
            committed_offset=draw(int64),
            committed_leader_epoch=draw(int32),
            committed_metadata=draw(st.none() | names),
        )
        for _ in range(count)
    ]


@st.composite
def requests(draw: st.DrawFn, version: int, topics: int = 1) -> generated.OffsetCommitRequest:
    by_id = version >= hot.TOPIC_IDS_SINCE
    return generated.OffsetCommitRequest(
        group_id=draw(names),
        generation_id_or_member_epoch=draw(int32),
        member_id=draw(names),
        group_instance_id=draw(st.none() | names),
        topics=[
            generated.OffsetCommitRequestTopic(
                name="" if by_id else draw(names),
                topic_id=draw(st.binary(min_size=16, max_size=16)) if by_id else bytes(16),
                partitions=draw(partitions()),
            )
            for _ in range(topics)
        ],
    )


def as_generated(commit: hot.OneTopic, version: int) -> generated.OffsetCommitRequest:
    by_id = version >= hot.TOPIC_IDS_SINCE
    topic = generated.OffsetCommitRequestTopic(
        name="" if by_id else str(commit.topic, "utf-8", "replace"),
        topic_id=commit.topic if by_id else bytes(16),
        partitions=[
            generated.OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            for partition, offset, leader_epoch, metadata in commit.offsets
        ],
    )
    return generated.OffsetCommitRequest(
        group_id=commit.group,
        generation_id_or_member_epoch=commit.generation,
        member_id=commit.member,
        group_instance_id=commit.instance,
        topics=[topic],
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_what_is_decoded_is_what_the_generated_codec_decodes(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    topic = hot.decode_single(b"head" + generated.encode_request(request, version), 4, version)
    texts = [request.group_id, request.member_id, request.group_instance_id or "", request.topics[0].name]
    texts += [each.committed_metadata or "" for each in request.topics[0].partitions]
    is_common = (
        max(len(text.encode()) for text in texts) < 127 and 0 < len(request.topics[0].partitions) < 127
    )
    assert (topic is not None) == is_common
    assert topic is None or as_generated(topic, version) == request


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_damage_and_other_kinds_are_left_to_the_generated_codec(version: int, data: st.DataObject) -> None:
    """Whatever is taken, is taken as the generated codec would have."""
    request = data.draw(requests(version, topics=data.draw(st.integers(0, 2))))
    damaged = bytearray(generated.encode_request(request, version))
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    frame = bytes(damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged)
    topic = hot.decode_single(frame, 0, version)
    try:
        decoded, end = generated.decode_request(frame, 0, version)
    except DecodeError:
        assert topic is None
    else:
        assert topic is None or (end == len(frame) and as_generated(topic, version) == decoded)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_answers_are_those_of_the_generated_codec(version: int, data: st.DataObject) -> None:
    topic = data.draw(
        st.binary(min_size=16, max_size=16)
        if version >= hot.TOPIC_IDS_SINCE
        else st.text(max_size=20).map(str.encode)
    )
    count = data.draw(st.integers(1, 5) | st.just(126))
    numbers = [data.draw(int32) for _ in range(count)]
    codes = [data.draw(st.integers(-1, 120)) for _ in range(count)]
    correlation_id = data.draw(int32)
    by_id = version >= hot.TOPIC_IDS_SINCE
    response = generated.OffsetCommitResponse(
        topics=[
            generated.OffsetCommitResponseTopic(
                name="" if by_id else topic.decode(),
                topic_id=topic if by_id else bytes(16),
                partitions=[
                    generated.OffsetCommitResponsePartition(partition_index=number, error_code=code)
                    for number, code in zip(numbers, codes, strict=True)
                ],
            )
        ]
    )
    expected = encode_response_header(correlation_id, 1) + generated.encode_response(response, version)
    answer = hot.encode_single(correlation_id, version, topic, numbers, codes)
    assert answer == len(expected).to_bytes(4, "big") + expected


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_what_the_first_part_means_is_known_from_another_request(version: int, data: st.DataObject) -> None:
    """Whoever sends the same first part, means the same group, member, topic and partition."""
    request = data.draw(requests(version))
    frame = generated.encode_request(request, version)
    topic, last = hot.decode_single(frame, 0, version), hot.split_last(frame, 0)
    if last is None or topic is None or len(topic.offsets) != 1 or topic.offsets[0][3]:
        return
    first, offset, leader_epoch, metadata = last
    assert topic.offsets[0][1:] == (offset, leader_epoch, metadata)
    offset, leader_epoch, metadata = (
        data.draw(int64),
        data.draw(int32),
        data.draw(st.sampled_from(["", None])),
    )
    each = request.topics[0].partitions[0]
    each.committed_offset, each.committed_leader_epoch, each.committed_metadata = (
        offset,
        leader_epoch,
        metadata,
    )
    again = generated.encode_request(request, version)
    assert hot.split_last(again, 0) == (first, offset, leader_epoch, metadata)
