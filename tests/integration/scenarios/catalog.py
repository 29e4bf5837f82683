"""The scenarios: each a list of steps, each step an operation, its arguments and what must come out.

Topic names are local to a scenario: the player puts a prefix of its own before them, and takes it off the
names that come back. An operation that fails answers `{"error": <Kafka error code>}`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.integration.scenarios.expect import AtLeast, Excludes, Includes, NonEmpty, TheseRecords
from tests.integration.scenarios.records import Record, incompressible, keyed

OK = "ok"
MESSAGE_TOO_LARGE = {"error": 10}
INVALID_TOPIC = {"error": 17}
TOPIC_ALREADY_EXISTS = {"error": 36}
INVALID_PARTITIONS = {"error": 37}
INVALID_REPLICATION_FACTOR = {"error": 38}
INVALID_CONFIG = {"error": 40}
UNKNOWN_TOPIC = {"error": 3}
OFFSET_OUT_OF_RANGE = {"error": 1}

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MEGABYTE = 1 << 20
YEAR_2020_MS = 1_577_836_800_000


@dataclass(frozen=True)
class Step:
    op: str
    args: dict[str, Any] = field(default_factory=dict)
    expect: Any = OK


@dataclass(frozen=True)
class Scenario:
    name: str
    steps: tuple[Step, ...]

    @property
    def ops(self) -> frozenset[str]:
        return frozenset(step.op for step in self.steps)

    def __str__(self) -> str:
        return self.name


def _topic(name: str = "t", partitions: int = 1, **configs: str) -> Step:
    """A topic as the ground for a scenario, made by the harness: not every client has an admin side."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return Step("prepare_topic", {"topic": name, "partitions": partitions, "configs": settings})


def _produce(records: tuple[Record, ...], expect: Any = None, **options: Any) -> Step:
    expect = {"acknowledged": len(records)} if expect is None else expect
    return Step("produce", {"topic": "t", "partition": 0, "records": records, **options}, expect)


def _consume(expect: TheseRecords, offset: int = 0) -> Step:
    count = len(expect.records)
    return Step("consume", {"topic": "t", "partition": 0, "offset": offset, "count": count}, expect)


def _offsets(at: str | int, expect: Any) -> Step:
    return Step("list_offsets", {"topic": "t", "partition": 0, "at": at}, expect)


def _time(timestamp_ms: int, offset: int | None) -> Step:
    return Step("offset_for_time", {"topic": "t", "partition": 0, "timestamp": timestamp_ms}, offset)


def _describe(expect: dict[str, str], topic: str = "t") -> Step:
    return Step("describe_config", {"topic": topic, "names": sorted(expect)}, expect)


def _stored(codec: str) -> Step:
    """What lies in the log, read batch by batch by the harness."""
    return Step("stored_codecs", {"topic": "t", "partition": 0}, [CODECS[codec]])


def _round_trip(codec: str) -> Scenario:
    records = keyed(100)
    steps = (
        _topic(),
        _produce(records, compression=codec),
        _consume(TheseRecords(records)),
        _consume(TheseRecords(records[60:], first_offset=60), offset=60),
        _stored(codec),
    )
    return Scenario(f"round_trip_{codec}", steps)


def _megabyte(codec: str) -> Scenario:
    records = incompressible(3, MEGABYTE)
    steps = (
        _topic(max_message_bytes=str(2 * MEGABYTE)),
        _produce(records, compression=codec, max_request_bytes=3 * MEGABYTE, batch_records=1),
        _consume(TheseRecords(records)),
    )
    return Scenario(f"one_megabyte_{codec}", steps)


def _acks(acks: int) -> Scenario:
    records = keyed(20)
    # Without acknowledgements only the log itself can tell what arrived.
    expect = {} if acks == 0 else {"acknowledged": len(records)}
    steps = (_topic(), _produce(records, expect, acks=acks), _consume(TheseRecords(records)))
    return Scenario(f"acks_{'all' if acks == -1 else acks}", steps)


_EMPTY_AND_NULL = (
    Record(b"no key"),
    Record(b"key and value", b"k"),
    Record(b"empty key", b""),
    Record(b"", b"empty value"),
    Record(None, b"null value"),
    Record(b"\x00\xff\x80 not text", b"\xfe\x00"),
)
_HEADERS = (
    Record(b"one", b"k", (("id", b"1"),)),
    Record(b"two of one name", b"k", (("tag", b"a"), ("tag", b"b"), ("other", b"c"))),
    Record(b"empty value", b"k", (("empty", b""),)),
    Record(b"none", b"k"),
)
# Long past, so that no other clock can have given these times: topics that hold them keep records for ever.
_TIMED = tuple(Record(b"%d" % number, b"k", (), YEAR_2020_MS + 1000 * number) for number in range(10))

_DATA = (
    *(_round_trip(codec) for codec in CODECS),
    *(_megabyte(codec) for codec in ("none", "lz4")),
    *(_acks(acks) for acks in (0, 1, -1)),
    Scenario(
        "empty_and_null",
        (_topic(), _produce(_EMPTY_AND_NULL), _consume(TheseRecords(_EMPTY_AND_NULL))),
    ),
    Scenario("headers", (_topic(), _produce(_HEADERS), _consume(TheseRecords(_HEADERS)))),
    Scenario(
        "null_header_value",
        (
            _topic(),
            _produce((Record(b"v", b"k", (("null", None),)),)),
            _consume(TheseRecords((Record(b"v", b"k", (("null", None),)),))),
        ),
    ),
    Scenario(
        "message_too_large",
        (
            _topic(),
            _produce(incompressible(1, 1_200_000), MESSAGE_TOO_LARGE, max_request_bytes=3 * MEGABYTE),
            _produce(keyed(3)),
            _consume(TheseRecords(keyed(3))),
        ),
    ),
    Scenario(
        "lookup_by_timestamp",
        (
            _topic(retention_ms="-1"),
            _produce(_TIMED),
            _consume(TheseRecords(_TIMED)),
            _time(0, 0),
            _time(YEAR_2020_MS + 4000, 4),
            _time(YEAR_2020_MS + 4001, 5),
            _time(YEAR_2020_MS + 9001, None),
        ),
    ),
    Scenario(
        "append_time",
        (
            _topic(message_timestamp_type="LogAppendTime"),
            _produce(_TIMED),
            _consume(TheseRecords(_TIMED, timestamps=AtLeast(YEAR_2020_MS + 1_000_000_000))),
        ),
    ),
    Scenario(
        "topic_compression",
        (
            _topic(compression_type="zstd"),
            _produce(keyed(50), compression="gzip"),
            _consume(TheseRecords(keyed(50))),
            _stored("zstd"),
        ),
    ),
    Scenario(
        "several_partitions",
        (
            _topic(partitions=3),
            *(
                Step(
                    "produce",
                    {"topic": "t", "partition": number, "records": keyed(number + 1)},
                    {"acknowledged": number + 1},
                )
                for number in range(3)
            ),
            *(
                Step(
                    "consume",
                    {"topic": "t", "partition": number, "offset": 0, "count": number + 1},
                    TheseRecords(keyed(number + 1)),
                )
                for number in range(3)
            ),
        ),
    ),
    Scenario(
        "idempotent",
        (
            _topic(),
            _produce(keyed(50), idempotent=True),
            _produce(keyed(50), idempotent=True),
            _consume(TheseRecords(keyed(50) + keyed(50))),
        ),
    ),
    Scenario(
        "idempotent_retries",
        (
            _topic(),
            _produce(keyed(1000), idempotent=True, batch_records=10, through_cuts=8),
            _consume(TheseRecords(keyed(1000))),
            _offsets("latest", {"offset": 1000}),
        ),
    ),
)

_ADMIN = (
    Scenario(
        "admin_topics",
        (
            Step("create_topic", {"topic": "a", "partitions": 3, "configs": {"retention.ms": "3600000"}}),
            Step("create_topic", {"topic": "b", "partitions": 1}),
            Step("list_topics", {}, Includes(("a", "b"))),
            Step(
                "describe_topic",
                {"topic": "a"},
                {"partitions": [{"id": n, "leader": AtLeast(0), "isr": NonEmpty()} for n in range(3)]},
            ),
            Step("create_topic", {"topic": "a", "partitions": 1}, TOPIC_ALREADY_EXISTS),
            Step("create_topic", {"topic": "bad name", "partitions": 1}, INVALID_TOPIC),
            Step("create_topic", {"topic": "c", "partitions": 0}, INVALID_PARTITIONS),
            Step("create_topic", {"topic": "c", "partitions": 1, "replicas": 5}, INVALID_REPLICATION_FACTOR),
            Step(
                "create_topic", {"topic": "c", "partitions": 1, "configs": {"no.such": "1"}}, INVALID_CONFIG
            ),
            Step("list_topics", {}, Excludes(("bad name", "c"))),
            Step("delete_topic", {"topic": "a"}),
            Step("delete_topic", {"topic": "no-such"}, UNKNOWN_TOPIC),
            Step("list_topics", {}, Excludes(("a",))),
        ),
    ),
    Scenario(
        "admin_partitions",
        (
            _topic(partitions=2),
            Step("create_partitions", {"topic": "t", "count": 4}),
            Step(
                "describe_topic",
                {"topic": "t"},
                {"partitions": [{"id": n, "leader": AtLeast(0)} for n in range(4)]},
            ),
            Step("create_partitions", {"topic": "t", "count": 3}, INVALID_PARTITIONS),
            Step(
                "produce",
                {"topic": "t", "partition": 3, "records": keyed(5)},
                {"acknowledged": 5},
            ),
        ),
    ),
    Scenario(
        "admin_configs",
        (
            _topic(retention_ms="3600000"),
            _describe({"retention.ms": "3600000", "cleanup.policy": "delete"}),
            Step("alter_config", {"topic": "t", "configs": {"max.message.bytes": "2000000"}}),
            _describe({"max.message.bytes": "2000000"}),
            Step("alter_config", {"topic": "t", "configs": {"retention.ms": "soon"}}, INVALID_CONFIG),
            _describe({"max.message.bytes": "2000000"}),
        ),
    ),
    Scenario(
        "admin_configs_replaced",
        (
            _topic(retention_ms="3600000"),
            Step("alter_config", {"topic": "t", "configs": {"max.message.bytes": "2000000"}}),
            # The old call replaces all of a topic's settings: what it does not name is default again.
            Step("describe_default", {"topic": "t", "names": ["retention.ms"]}, {"retention.ms": True}),
            _describe({"max.message.bytes": "2000000"}),
        ),
    ),
    Scenario(
        "admin_incremental_configs",
        (
            _topic(retention_ms="3600000"),
            Step("incremental_alter_config", {"topic": "t", "assign": {"max.message.bytes": "2000000"}}),
            _describe({"retention.ms": "3600000", "max.message.bytes": "2000000"}),
            Step("incremental_alter_config", {"topic": "t", "delete": ["retention.ms"]}),
            Step("describe_default", {"topic": "t", "names": ["retention.ms"]}, {"retention.ms": True}),
            _describe({"max.message.bytes": "2000000"}),
            Step(
                "incremental_alter_config",
                {"topic": "t", "assign": {"max.message.bytes": "-5"}},
                INVALID_CONFIG,
            ),
        ),
    ),
    Scenario(
        "admin_records_and_offsets",
        (
            _topic(retention_ms="-1"),
            _produce(_TIMED),
            _offsets("earliest", {"offset": 0}),
            _offsets("latest", {"offset": 10}),
            _offsets(YEAR_2020_MS + 4000, {"offset": 4}),
            Step("delete_records", {"topic": "t", "partition": 0, "before": 4}, {"low_watermark": 4}),
            _offsets("earliest", {"offset": 4}),
            Step("delete_records", {"topic": "t", "partition": 0, "before": 99}, OFFSET_OUT_OF_RANGE),
            _consume(TheseRecords(_TIMED[4:], first_offset=4), offset=4),
        ),
    ),
    Scenario(
        "admin_max_timestamp",
        (_topic(retention_ms="-1"), _produce(_TIMED), _offsets("max_timestamp", {"offset": 9})),
    ),
    Scenario(
        "admin_cluster",
        (
            Step(
                "describe_cluster",
                {},
                {"cluster_id": NonEmpty(), "controller": AtLeast(0), "nodes": [{"id": AtLeast(0)}]},
            ),
        ),
    ),
    Scenario(
        "admin_log_dirs",
        (_topic(), _produce(keyed(10)), Step("describe_log_dirs", {"topic": "t"}, {"bytes": AtLeast(2000)})),
    ),
    Scenario(
        "admin_producers",
        (
            _topic(),
            _produce(keyed(10), idempotent=True),
            Step("describe_producers", {"topic": "t", "partition": 0}, [{"last_sequence": 9}]),
        ),
    ),
)

SCENARIOS: tuple[Scenario, ...] = _DATA + _ADMIN
