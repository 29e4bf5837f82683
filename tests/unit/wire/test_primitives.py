"""The rules at the edges: what is refused, what is skipped, what a version leaves out."""

import pytest

from penstock.wire.kafka.generated import create_topics, fetch, metadata, offset_commit, produce
from penstock.wire.kafka.messages import request_module, version_range
from penstock.wire.kafka.primitives import (
    DecodeError,
    EncodeError,
    read_bytes,
    read_compact_count,
    read_compact_string,
    read_compact_strings,
    read_count,
    read_nullable_bytes,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    write_compact_string,
    write_uvarint,
)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, (1 << 31) - 1, (1 << 32) - 1])
def test_uvarint_survives_the_wire(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert read_uvarint(b"\xff" + out, 1) == (value, 1 + len(out))


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x1f"])
def test_uvarint_over_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(data, 0)


def test_lengths_beyond_the_bytes_left_are_refused() -> None:
    for read, data in (
        (read_string, b"\x00\x05abcd"),
        (read_string, b"\xff\xfeabcd"),
        (read_bytes, b"\x00\x00\x00\x05abcd"),
        (read_bytes, b"\xff\xff\xff\xfeabcd"),
        (read_compact_string, b"\x06abcd"),
    ):
        with pytest.raises(DecodeError):
            read(data, 0)


def test_counts_that_the_bytes_left_cannot_hold_are_refused() -> None:
    assert read_count(b"\x00\x00\x00\x02" + bytes(8), 0, 4) == (2, 4)
    with pytest.raises(DecodeError):
        read_count(b"\x00\x00\x00\x02" + bytes(7), 0, 4)
    with pytest.raises(DecodeError):
        read_count(b"\xff\xff\xff\xfe", 0, 1)
    assert read_compact_count(b"\x03" + bytes(8), 0, 4) == (2, 1)
    with pytest.raises(DecodeError):
        read_compact_count(b"\x03" + bytes(7), 0, 4)
    with pytest.raises(DecodeError):
        read_compact_count(b"\x00", 0, 4)


def test_strings_are_bounded_as_in_kafka() -> None:
    out = bytearray()
    write_compact_string(out, "x" * 32_767)
    assert read_compact_string(out, 0) == ("x" * 32_767, len(out))
    with pytest.raises(EncodeError):
        write_compact_string(out, "x" * 32_768)
    out = bytearray()
    write_uvarint(out, 32_769)
    with pytest.raises(DecodeError):
        read_compact_string(bytes(out) + bytes(32_768), 0)


def test_null_inside_an_array_of_strings_is_refused() -> None:
    assert read_compact_strings(b"\x02a\x02b", 0, 2) == (["a", "b"], 4)
    with pytest.raises(DecodeError):
        read_compact_strings(b"\x02a\x00", 0, 2)


def test_text_that_is_not_utf8_is_read_with_replacement_characters() -> None:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="abc")])
    data = metadata.encode_request(request, 12).replace(b"abc", b"a\xffc")
    message, _ = metadata.decode_request(data, 0, 12)
    assert message.topics is not None
    assert message.topics[0].name == "a\ufffdc"


def test_every_negative_length_is_null() -> None:
    assert metadata.decode_request(b"\xff\xff\xff\xfe", 0, 1)[0].topics is None
    with pytest.raises(DecodeError):
        metadata.decode_request(b"\xff\xff\xff\xfe", 0, 0)
    assert read_nullable_string(b"\xff\xfe", 0) == (None, 2)
    assert read_nullable_bytes(b"\xff\xff\xff\xfe", 0) == (None, 4)


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    request = create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name="t")], timeout_ms=5)
    data = create_topics.encode_request(request, 7)
    # The topic's own tag section is the byte after its last array; the request's is the last byte.
    assert data == b"\x02" + b"\x02t" + bytes(6) + b"\x01\x01" + b"\x00" + b"\x00\x00\x00\x05\x00" + b"\x00"
    unknown = b"\x01\x63\x03abc"
    tagged = data[:11] + unknown + data[12:-1] + unknown
    assert create_topics.decode_request(tagged, 0, 7) == (request, len(tagged))
    assert skip_tags(unknown, 0) == len(unknown)
    with pytest.raises(DecodeError):
        skip_tags(unknown[:-1], 0)


def test_a_known_tagged_field_that_disagrees_with_its_size_is_refused() -> None:
    request = fetch.FetchRequest(cluster_id="c1")
    data = fetch.encode_request(request, 12)
    assert data.endswith(b"\x01\x00\x03\x03c1")  # one tag: number 0, three bytes, a string of two
    with pytest.raises(DecodeError):
        fetch.decode_request(data[:-5] + b"\x00\x04\x03c1z", 0, 12)


def test_a_tag_that_a_version_does_not_know_is_skipped() -> None:
    state = fetch.FetchRequest(replica_state=fetch.ReplicaState(replica_id=3, replica_epoch=9))
    data = fetch.encode_request(state, 15)
    in_14 = fetch.encode_request(fetch.FetchRequest(), 14)[:-1] + data[-16:]
    assert data[-16:-13] == b"\x01\x01\x0d"  # one tag: number 1, 13 bytes
    message, end = fetch.decode_request(in_14, 0, 14)
    assert (message.replica_state.replica_id, end) == (-1, len(in_14))


def test_fields_a_version_lacks_are_left_out_and_read_as_their_default() -> None:
    response = metadata.MetadataResponse(throttle_time_ms=5, cluster_id="c", controller_id=4)
    back, _ = metadata.decode_response(metadata.encode_response(response, 0), 0, 0)
    assert (back.throttle_time_ms, back.cluster_id, back.controller_id) == (0, None, -1)


def test_null_only_where_the_version_allows_it() -> None:
    everything = metadata.MetadataRequest(topics=None)
    assert metadata.decode_request(metadata.encode_request(everything, 1), 0, 1)[0].topics is None
    with pytest.raises(EncodeError):
        metadata.encode_request(everything, 0)
    with pytest.raises(DecodeError):
        metadata.decode_request(b"\xff\xff\xff\xff", 0, 0)
    # Versions 11 and 12 of the response differ in this alone.
    nameless = metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(name=None)])
    data = metadata.encode_response(nameless, 12)
    assert metadata.decode_response(data, 0, 12)[0] == nameless
    with pytest.raises(DecodeError):
        metadata.decode_response(data, 0, 11)


@pytest.mark.parametrize(
    "response",
    [
        metadata.MetadataResponse(controller_id=1 << 31),
        metadata.MetadataResponse(error_code=-(1 << 15) - 1),
        metadata.MetadataResponse(cluster_id="x" * 40_000),
        metadata.MetadataResponse(cluster_id="\ud800"),
        metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(topic_id=b"short")]),
        metadata.MetadataResponse(
            topics=[
                metadata.MetadataResponseTopic(
                    partitions=[metadata.MetadataResponsePartition(isr_nodes=[1 << 40])]
                )
            ]
        ),
        metadata.MetadataResponse(topics=[None]),  # type: ignore[list-item]
        metadata.MetadataResponse(brokers=None),  # type: ignore[arg-type]
    ],
)
def test_values_outside_their_type_are_refused(response: metadata.MetadataResponse) -> None:
    with pytest.raises(EncodeError):
        metadata.encode_response(response, 13)


def test_versions_there_are_none_of_are_refused() -> None:
    with pytest.raises(EncodeError):
        metadata.encode_request(metadata.MetadataRequest(), 14)
    with pytest.raises(DecodeError):
        offset_commit.decode_request(bytes(100), 0, 1)


def test_records_are_views_of_the_frame() -> None:
    partition = produce.PartitionProduceData(index=1, records=b"batch")
    topic = produce.TopicProduceData(name="t", partition_data=[partition])
    frame = produce.encode_request(produce.ProduceRequest(topic_data=[topic], acks=1), 9)
    message, _ = produce.decode_request(frame, 0, 9)
    records = message.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == b"batch"


def test_lists_and_structs_are_not_shared_between_messages() -> None:
    partition, other = fetch.PartitionData(), fetch.PartitionData()
    assert partition == other
    assert partition.diverging_epoch is not other.diverging_epoch
    one_response, other_response = fetch.FetchResponse(), fetch.FetchResponse()
    one_response.responses.append(fetch.FetchableTopicResponse())
    assert one_response != other_response


def test_messages_show_their_fields() -> None:
    topic = metadata.MetadataRequestTopic(name="t")
    assert repr(topic) == f"MetadataRequestTopic(topic_id={bytes(16)!r}, name='t')"
    assert topic != metadata.MetadataRequestTopic(name="u")
    assert topic != "t"


def test_codecs_are_found_by_api_key() -> None:
    module = request_module(3)
    assert (3, *version_range(3)) == (module.API_KEY, module.MIN_VERSION, module.MAX_VERSION)
    with pytest.raises(DecodeError):
        request_module(999)
