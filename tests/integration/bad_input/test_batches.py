"""Batches that are not what they claim to be: refused with Kafka's code, nothing stored, the connection lives on."""

from collections.abc import Callable
from struct import pack_into

import pytest
from tests.integration.bad_input.conftest import Victim
from tests.integration.raw import RawClient, create_topic, make_batch, produce_request, produced, read_log

from penstock.core.clock import SystemClock
from penstock.core.error_codes import ErrorCode as E
from penstock.records.batch import stamp_crc
from penstock.records.builder import BatchOptions
from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import produce

HOUR_MS = 3_600_000
MESSAGE_BYTES_MAX = 1_048_588  # the default of max.message.bytes
Change = Callable[[bytearray], object]

MAGIC_AT, CRC_AT, ATTRIBUTES_AT = 16, 17, 21
LENGTH_AT, LAST_DELTA_AT, MAX_TIMESTAMP_AT, COUNT_AT = 8, 23, 35, 57
PRODUCER_ID_AT, EPOCH_AT, SEQUENCE_AT = 43, 51, 53


def put(code: str, at: int, value: int) -> Change:
    """Overwrite a header field; the CRC is made right again unless it is the thing that is wrong."""

    def change(batch: bytearray) -> None:
        pack_into(code, batch, at, value)
        if at != CRC_AT and at > CRC_AT:
            stamp_crc(memoryview(batch), 0, len(batch))

    return change


def cut(size: int) -> Change:
    def change(batch: bytearray) -> None:
        del batch[size:]

    return change


def both(*changes: Change) -> Change:
    def change(batch: bytearray) -> None:
        for change in changes:
            change(batch)

    return change


def counted(count: int) -> Change:
    return both(put(">i", COUNT_AT, count), put(">i", LAST_DELTA_AT, count - 1))


def doubled(batch: bytearray) -> None:
    batch += bytes(batch)


# what is done to a batch of three records, the code, and whether the log was asked (its start is in the answer)
REFUSED: dict[str, tuple[Change, E, bool]] = {
    "wrong CRC": (put(">I", CRC_AT, 12345), E.CORRUPT_MESSAGE, False),
    "a bit of the payload flipped": (lambda b: b.__setitem__(70, b[70] ^ 1), E.CORRUPT_MESSAGE, False),
    "magic 0": (put(">b", MAGIC_AT, 0), E.INVALID_RECORD, False),
    "magic 1": (put(">b", MAGIC_AT, 1), E.INVALID_RECORD, False),
    "magic 3": (put(">b", MAGIC_AT, 3), E.CORRUPT_MESSAGE, False),
    "magic -1": (put(">b", MAGIC_AT, -1), E.CORRUPT_MESSAGE, False),
    "no bytes": (cut(0), E.INVALID_RECORD, False),
    "ten bytes": (cut(10), E.INVALID_RECORD, False),
    "half a header": (cut(40), E.INVALID_RECORD, False),
    "one byte missing": (lambda b: b.pop(), E.INVALID_RECORD, False),
    "length one too large": (lambda b: pack_into(">i", b, 8, len(b) - 11), E.INVALID_RECORD, False),
    "length far too large": (put(">i", LENGTH_AT, 0x7FFFFFFF), E.INVALID_RECORD, False),
    "length 0": (put(">i", LENGTH_AT, 0), E.CORRUPT_MESSAGE, False),
    "length negative": (put(">i", LENGTH_AT, -1), E.CORRUPT_MESSAGE, False),
    "length of a bare header": (put(">i", LENGTH_AT, 49), E.CORRUPT_MESSAGE, False),
    "length below the header": (put(">i", LENGTH_AT, 20), E.CORRUPT_MESSAGE, False),
    "two batches": (doubled, E.INVALID_RECORD, False),
    "count above the last delta": (put(">i", COUNT_AT, 5), E.INVALID_RECORD, True),
    "count below it": (put(">i", COUNT_AT, 1), E.INVALID_RECORD, True),
    "count 0": (put(">i", COUNT_AT, 0), E.INVALID_RECORD, True),
    "count negative": (put(">i", COUNT_AT, -3), E.INVALID_RECORD, True),
    "count of 2^31 - 1": (put(">i", COUNT_AT, 0x7FFFFFFF), E.INVALID_RECORD, True),
    "2^31 - 1 records, consistently": (counted(0x7FFFFFFF), E.INVALID_RECORD, True),
    "more records than fit": (counted(20), E.INVALID_RECORD, True),
    "2^31 - 1 compressed records": (
        both(put(">h", ATTRIBUTES_AT, 4), counted(0x7FFFFFFF)), E.INVALID_RECORD, True
    ),
    "last delta too large": (put(">i", LAST_DELTA_AT, 9), E.INVALID_RECORD, True),
    "last delta negative": (put(">i", LAST_DELTA_AT, -1), E.INVALID_RECORD, True),
    "base offset set": (put(">q", 0, 5), E.INVALID_RECORD, True),
    "control batch": (put(">h", ATTRIBUTES_AT, 0x20), E.INVALID_RECORD, True),
    "transaction without id": (put(">h", ATTRIBUTES_AT, 0x10), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
    "producer without sequence": (put(">q", PRODUCER_ID_AT, 7), E.INVALID_RECORD, True),
    "unknown codec": (put(">h", ATTRIBUTES_AT, 6), E.INVALID_RECORD, True),
}  # fmt: skip


@pytest.mark.parametrize(("change", "code", "log_asked"), REFUSED.values(), ids=REFUSED.keys())
def test_a_batch_that_contradicts_itself_is_refused(
    victim: Victim, change: Change, code: E, log_asked: bool
) -> None:
    batch = make_batch([b"a" * 20, b"b", b"c"])
    change(batch)
    with RawClient(victim.port) as client:
        answer = produced(client, victim.topic, batch)
        assert E(answer.error_code) is code
        assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
        assert answer.log_start_offset == (0 if log_asked else -1)
        # The same connection is still good for a batch that is right.
        assert produced(client, victim.neighbour.topic + "-unknown", make_batch([b"x"])).error_code == 3


def test_null_records_get_an_error_they_can_be_found_by(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        answer = produced(client, victim.topic, None)
    assert E(answer.error_code) is E.INVALID_RECORD
    assert answer.error_message


def test_zstd_needs_a_client_that_speaks_version_7(victim: Victim) -> None:
    batch = make_batch([b"x" * 100], BatchOptions(codec=4))
    with RawClient(victim.port) as client:
        assert (
            E(produced(client, victim.topic, batch, version=6).error_code) is E.UNSUPPORTED_COMPRESSION_TYPE
        )


ACCEPTED: dict[str, Change] = {
    "bytes behind the batch": lambda b: b.extend(b"garbage"),
    "a leader epoch": put(">i", 12, 9),
    "unknown attributes": put(">h", ATTRIBUTES_AT, 0x80),
    "delete horizon": put(">h", ATTRIBUTES_AT, 0x40),
    "append time flag": put(">h", ATTRIBUTES_AT, 0x08),
    "producer id -7": put(">q", PRODUCER_ID_AT, -7),
    "sequence without producer": put(">i", SEQUENCE_AT, 5),
}


@pytest.mark.parametrize("change", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_kafka_lets_pass_passes(
    running: BrokerProcess, client: RawClient, topic: str, change: Change
) -> None:
    batch = make_batch([b"a", b"b"])
    change(batch)
    answer = produced(client, topic, batch)
    assert (E(answer.error_code), answer.base_offset) == (E.NONE, 0)
    assert read_log(running.port, topic) == [b"a", b"b"]


@pytest.mark.parametrize("extra", [0, 1])
def test_the_size_limit_is_the_whole_batch_and_inclusive(
    running: BrokerProcess, client: RawClient, topic: str, extra: int
) -> None:
    room = MESSAGE_BYTES_MAX - len(make_batch([bytes(1_000_000)])) + 1_000_000
    batch = make_batch([bytes(room + extra)])
    assert len(batch) == MESSAGE_BYTES_MAX + extra
    answer = produced(client, topic, batch)
    assert E(answer.error_code) is (E.MESSAGE_TOO_LARGE if extra else E.NONE)
    assert len(read_log(running.port, topic)) == 1 - extra


def test_a_batch_larger_than_a_segment_is_refused(running: BrokerProcess, client: RawClient) -> None:
    configs: dict[str, str | None] = {"segment.bytes": "1048576", "max.message.bytes": "3000000"}
    assert create_topic(client, "small-segments", configs=configs).error_code == 0
    answer = produced(client, "small-segments", make_batch([bytes(1_100_000)]))
    assert (E(answer.error_code), answer.log_start_offset) == (E.RECORD_LIST_TOO_LARGE, -1)
    assert produced(client, "small-segments", make_batch([b"fits"])).base_offset == 0


def test_a_partition_named_twice_is_written_once_with_the_last_batch(
    running: BrokerProcess, client: RawClient, topic: str
) -> None:
    batches = [(0, make_batch([b"first"])), (1, make_batch([b"other"])), (0, make_batch([b"last"]))]
    answer = client.call(ApiKey.PRODUCE, 9, produce_request(topic, batches))
    assert [(p.index, p.base_offset) for p in answer.responses[0].partition_responses] == [(0, 0), (1, 0)]
    assert (read_log(running.port, topic, 0), read_log(running.port, topic, 1)) == ([b"last"], [b"other"])


def test_a_topic_named_twice_is_answered_once(running: BrokerProcess, client: RawClient, topic: str) -> None:
    request = produce_request(topic, [(0, make_batch([b"a"]))])
    request.topic_data += produce_request(topic, [(1, make_batch([b"b"]))]).topic_data
    answer = client.call(ApiKey.PRODUCE, 9, request)
    assert [[p.index for p in response.partition_responses] for response in answer.responses] == [[0, 1]]
    assert (read_log(running.port, topic, 0), read_log(running.port, topic, 1)) == ([b"a"], [b"b"])


@pytest.mark.parametrize("name", ["nowhere", "a/b", "..", "", "x" * 250, "__no_such"])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_unknown_and_illegal_topics_are_unknown_and_not_created(
    victim: Victim, name: str, version: int
) -> None:
    with RawClient(victim.port) as client:
        answer = produced(client, name, make_batch([b"x"]), version=version)
        assert E(answer.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION
        for number in (-1, 2, 0x7FFFFFFF):
            answer = produced(client, victim.topic, make_batch([b"x"]), partition=number, version=version)
            assert E(answer.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("topic_id", [bytes(16), b"\xab" * 16])
def test_unknown_topic_ids_are_told_apart_from_names(victim: Victim, topic_id: bytes) -> None:
    data = produce.PartitionProduceData(index=0, records=bytes(make_batch([b"x"])))
    topics = [produce.TopicProduceData(topic_id=topic_id, partition_data=[data])]
    with RawClient(victim.port) as client:
        answer = client.call(ApiKey.PRODUCE, 13, produce.ProduceRequest(acks=1, topic_data=topics))
    assert E(answer.responses[0].partition_responses[0].error_code) is E.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_of_a_number_nobody_knows_is_refused(victim: Victim, acks: int) -> None:
    with RawClient(victim.port) as client:
        request = produce_request(victim.topic, [(0, make_batch([b"x"]))], acks)
        answer = client.call(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
    assert E(answer.error_code) is E.INVALID_REQUIRED_ACKS


def test_an_error_with_acks_0_closes_the_connection(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        request = produce_request("nowhere", [(0, make_batch([b"x"]))], acks=0)
        client.send_bytes(client.frame(ApiKey.PRODUCE, 9, request, answered=False))
        assert client.is_closed()


def test_timestamps_outside_of_what_the_topic_allows_are_refused(victim: Victim) -> None:
    now = SystemClock().now_ms()
    name = victim.topic + "-times"
    configs: dict[str, str | None] = {"message.timestamp.before.max.ms": str(HOUR_MS)}
    with RawClient(victim.port) as client:
        create_topic(client, name, configs=configs)
        for timestamp in (now + 2 * HOUR_MS, now - 2 * HOUR_MS, 0, 1 << 62):
            answer = produced(client, name, make_batch([b"x"], timestamp=timestamp))
            assert (E(answer.error_code), answer.log_start_offset) == (E.INVALID_TIMESTAMP, 0)
        ahead = produced(client, victim.topic, make_batch([b"x"], timestamp=now + 2 * HOUR_MS))
        assert E(ahead.error_code) is E.INVALID_TIMESTAMP
        assert produced(client, name, make_batch([b"x"], timestamp=now)).base_offset == 0


def sent(client: RawClient, topic: str, sequence: int, *, epoch: int = 0, count: int = 1) -> tuple[E, int]:
    options = BatchOptions(producer_id=4711, producer_epoch=epoch, base_sequence=sequence)
    answer = produced(client, topic, make_batch([b"%d" % (sequence + i) for i in range(count)], options))
    return E(answer.error_code), answer.base_offset


def test_sequences_out_of_order_are_refused_and_repeats_answered_once(
    running: BrokerProcess, client: RawClient, topic: str
) -> None:
    assert [sent(client, topic, n) for n in range(7)] == [(E.NONE, n) for n in range(7)]
    assert sent(client, topic, 4) == (E.NONE, 4)
    for sequence, count in ((8, 1), (0x7FFFFFFF, 1), (1, 1), (4, 2)):
        assert sent(client, topic, sequence, count=count) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sent(client, topic, 3, epoch=1) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sent(client, topic, 0, epoch=1) == (E.NONE, 7)
    assert sent(client, topic, 7, epoch=0) == (E.INVALID_PRODUCER_EPOCH, -1)
    assert read_log(running.port, topic) == [b"%d" % n for n in range(7)] + [b"0"]
