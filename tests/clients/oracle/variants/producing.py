"""Produce: good batches, and each way a batch or its request can be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.batches import Batch, record, varint
from tests.clients.oracle.model import PRODUCE, Context, variant
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, UNKNOWN_PARTITIONS, unknown_id
from tests.clients.oracle.world import COMPRESS, EPOCH_MS, compressed

from penstock.wire.kafka.generated import produce
from penstock.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients.oracle.sides import Side

IDS_SINCE = 13
ZSTD_SINCE = 7
CONTROL, TRANSACTIONAL, APPEND_TIME = 0x20, 0x10, 0x08
ONE_BATCH = Batch(timestamp_ms=EPOCH_MS)


def _request(
    entries: list[tuple[str, int, Any]],
    acks: int = 1,
    transactional_id: str | None = None,
    timeout_ms: int = 10_000,
) -> Any:
    """`entries` are (topic, partition, records); records may depend on the side, as producer ids do."""

    def build(side: Side) -> Any:
        topics: dict[str, list[Any]] = {}
        for name, partition, records in entries:
            data = records(side) if callable(records) else records
            topics.setdefault(name, []).append(produce.PartitionProduceData(index=partition, records=data))
        return produce.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                produce.TopicProduceData(
                    name=name, topic_id=side.topic_ids.get(name, ZERO_UUID), partition_data=parts
                )
                for name, parts in topics.items()
            ],
        )

    return build


def _to(ctx: Context, kind: str, records: Any, **options: Any) -> Any:
    """Records to this version's own topic of a kind, so that the shared ones stay as they are."""
    return _request([(ctx.world.own_topic(PRODUCE, ctx.version, kind), 0, records)], **options)


# Good ones


@variant(PRODUCE, "one batch", valid=True)
def _(ctx: Context) -> Any:
    values = tuple(ctx.rng.randbytes(ctx.rng.randrange(200)) for _ in range(ctx.rng.randint(1, 6)))
    return _to(ctx, "plain", Batch(values, timestamp_ms=EPOCH_MS).encode(), acks=ctx.rng.choice([1, -1]))


@variant(PRODUCE, "null and empty values", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", Batch((None, b"", b"v"), (None, b"", b"k"), EPOCH_MS).encode())


@variant(PRODUCE, "compressed", valid=True)
def _(ctx: Context) -> Any:
    codecs = [codec for codec in COMPRESS if codec != 4 or ctx.version >= ZSTD_SINCE]
    return _to(ctx, "plain", compressed(ctx.rng.choice(codecs)))


@variant(PRODUCE, "several partitions", valid=True)
def _(ctx: Context) -> Any:
    topic = ctx.world.own_topic(PRODUCE, ctx.version, "plain")
    other = ctx.world.own_topic(PRODUCE, ctx.version, "append")
    batch = ONE_BATCH.encode()
    return _request([(topic, 0, batch), (topic, 1, batch), (other, 0, batch)])


@variant(PRODUCE, "keyed to a compacted topic", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "compact", Batch((b"v", None), (b"k", b"k"), EPOCH_MS).encode())


@variant(PRODUCE, "append time", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "append", Batch(timestamp_ms=ctx.rng.choice([EPOCH_MS, 0, -1, 2**50])).encode())


@variant(PRODUCE, "old or no timestamp", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", Batch(timestamp_ms=ctx.rng.choice([-1, 0, 1, EPOCH_MS])).encode())


@variant(PRODUCE, "min.insync.replicas above the replicas", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "strict", ONE_BATCH.encode(), acks=ctx.rng.choice([1, -1]))


@variant(PRODUCE, "no acknowledgement", valid=True, silent=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode(), acks=0)


@variant(PRODUCE, "idempotent, in sequence", valid=True)
def _(ctx: Context) -> Any:
    sequence = ctx.world.next_sequence(ctx.version)
    return _to(ctx, "idempotent", _sequenced(1, sequence))


@variant(PRODUCE, "idempotent, the last again", valid=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "idempotent", _sequenced(1, ctx.world.last_sequence(ctx.version)))


@variant(PRODUCE, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _request([])


def _sequenced(producer: int, sequence: int, epoch: int = 0, **options: Any) -> Callable[[Side], bytes]:
    return lambda side: Batch(
        timestamp_ms=EPOCH_MS,
        producer_id=side.producer_ids[producer],
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    ).encode()


# Wrong requests


@variant(PRODUCE, "unknown partition", valid=False)
def _(ctx: Context) -> Any:
    topic = ctx.world.own_topic(PRODUCE, ctx.version, "plain")
    return _request([(topic, ctx.rng.choice(UNKNOWN_PARTITIONS), ONE_BATCH.encode())])


@variant(PRODUCE, "unknown or illegal topic", valid=False, versions=(0, IDS_SINCE - 1))
def _(ctx: Context) -> Any:
    return _request([(ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), 0, ONE_BATCH.encode())])


@variant(PRODUCE, "unknown id", valid=False, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    topic_id = ctx.rng.choice([ZERO_UUID, unknown_id(ctx.rng)])
    data = [produce.PartitionProduceData(index=0, records=ONE_BATCH.encode())]
    return lambda _: produce.ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData(topic_id=topic_id, partition_data=data)],
    )


@variant(PRODUCE, "no acknowledgement, unknown partition", valid=False, silent=True)
def _(ctx: Context) -> Any:
    return _request([(ctx.world.own_topic(PRODUCE, ctx.version, "plain"), 99, ONE_BATCH.encode())], acks=0)


@variant(PRODUCE, "no acknowledgement, corrupt", valid=False, silent=True)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", Batch(crc=1).encode(), acks=0)


@variant(PRODUCE, "impossible acks", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode(), acks=ctx.rng.choice([2, 3, -2, 32767]))


@variant(PRODUCE, "partition twice", valid=False)
def _(ctx: Context) -> Any:
    topic = ctx.world.own_topic(PRODUCE, ctx.version, "plain")
    return _request([(topic, 0, ONE_BATCH.encode()), (topic, 0, ONE_BATCH.encode())])


@variant(PRODUCE, "transactional id, plain batch", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode(), transactional_id="transaction")


# Wrong batches: what the header alone shows


_HEADER_FAULTS: dict[str, tuple[Batch, ...]] = {
    "wrong crc": (Batch(crc=0), Batch(crc=12345)),
    "old magic": (Batch(magic=0), Batch(magic=1)),
    "unknown magic": (Batch(magic=3), Batch(magic=-1), Batch(magic=127)),
    "length beyond the bytes": (Batch(length=500), Batch(length=2**31 - 1)),
    "length too small": (Batch(length=48), Batch(length=49), Batch(length=60)),
    "length below a record's overhead": (Batch(length=13), Batch(length=0), Batch(length=-1)),
    "count and last offset disagree": (
        Batch(last_offset_delta=5),
        Batch(last_offset_delta=-1),
        Batch((b"a", b"b"), last_offset_delta=0),
    ),
    "count": (Batch(count=0), Batch(count=-1), Batch(count=2**31 - 1)),
    "count and last offset agree, records do not": (Batch(count=5, last_offset_delta=4),),
    "no records": (Batch((), count=0, last_offset_delta=0), Batch((), count=0, last_offset_delta=-1)),
    "base offset": (Batch(base_offset=5), Batch(base_offset=-1)),
    "control batch": (Batch(attributes=CONTROL),),
    "transactional without a producer": (Batch(attributes=TRANSACTIONAL),),
    "unknown codec": (Batch(attributes=5), Batch(attributes=7)),
    "append time claimed": (Batch(attributes=APPEND_TIME, timestamp_ms=EPOCH_MS),),
    "reserved attributes": (
        Batch(attributes=0x40, timestamp_ms=EPOCH_MS),
        Batch(attributes=0x80, timestamp_ms=EPOCH_MS),
    ),
    "leader epoch": (Batch(leader_epoch=9, timestamp_ms=EPOCH_MS),),
    "wrong max timestamp": (Batch(timestamp_ms=EPOCH_MS, max_timestamp_ms=EPOCH_MS + 77),),
    "producer without a sequence": (Batch(producer_id=5, producer_epoch=0, base_sequence=-1),),
    "negative producer id": (
        Batch(producer_id=-7, producer_epoch=0, base_sequence=0, timestamp_ms=EPOCH_MS),
    ),
    "sequence without a producer": (Batch(base_sequence=5, timestamp_ms=EPOCH_MS),),
}

# Wrong batches: what shows only when the records are opened.


def _with_payload(payload: bytes, attributes: int = 0, values: int = 1) -> Batch:
    return Batch((b"",) * values, attributes=attributes, timestamp_ms=EPOCH_MS, payload=payload)


def _sized(body: bytes) -> bytes:
    return varint(len(body)) + body


_RECORD_FAULTS: dict[str, tuple[Batch, ...]] = {
    "records cut short": (_with_payload(b"\x02"), _with_payload(record(0, b"abc")[:-2])),
    "bytes behind the records": (_with_payload(record(0, b"a") + b"\x00\x00\x00"),),
    "unreadable records": (_with_payload(b"\xff" * 20),),
    "fewer records than counted": (_with_payload(record(0, b"a"), values=2),),
    "negative header count": (_with_payload(_sized(b"\x00\x00\x00\x01\x02a\x01")),),
    "null header name": (_with_payload(_sized(b"\x00\x00\x00\x01\x02a\x02\x01\x02x")),),
    "wrong offset delta": (_with_payload(record(3, b"a")),),
    "record timestamp beyond the batch's": (_with_payload(record(0, b"a", timestamp_delta=500)),),
    "not the codec it claims": tuple(_with_payload(record(0, b"a"), codec) for codec in (1, 2, 3)),
}


def _register(label: str, batches: tuple[Batch, ...]) -> None:
    @variant(PRODUCE, label, valid=False)
    def _(ctx: Context) -> Any:
        return _to(ctx, "plain", ctx.rng.choice(batches).encode())


for _label, _batches in {**_HEADER_FAULTS, **_RECORD_FAULTS}.items():
    _register(_label, _batches)


@variant(PRODUCE, "zstd before its version", valid=False, versions=(0, ZSTD_SINCE - 1))
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", compressed(4))


@variant(PRODUCE, "garbage for records", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ctx.rng.choice([b"", b"\x00" * 10, b"\x00" * 61, b"\xff" * 80, b"x" * 16]))


@variant(PRODUCE, "bytes behind the batch", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode() + ctx.rng.choice([b"x", b"x" * 11, b"\x00" * 12]))


@variant(PRODUCE, "two batches", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode() * 2)


@variant(PRODUCE, "batch cut short", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", ONE_BATCH.encode()[: -ctx.rng.randint(1, 50)])


@variant(PRODUCE, "timestamp in the future", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "plain", Batch(timestamp_ms=ctx.rng.choice([2**50, 2**62])).encode())


@variant(PRODUCE, "timestamp too old for the topic", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "recent", ONE_BATCH.encode())


@variant(PRODUCE, "too large", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "small", Batch((b"x" * ctx.rng.choice([1000, 5000]),), timestamp_ms=EPOCH_MS).encode())


@variant(PRODUCE, "no key for a compacted topic", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "compact", Batch((b"a", b"b"), (b"k", None), EPOCH_MS).encode())


@variant(PRODUCE, "sequence gap", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "idempotent", _sequenced(1, ctx.world.last_sequence(ctx.version) + ctx.rng.randint(5, 9)))


@variant(PRODUCE, "sequence long gone", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "idempotent", _sequenced(1, ctx.world.long_gone_sequence(ctx.version)))


@variant(PRODUCE, "older epoch", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "fenced", _sequenced(2, 0, ctx.rng.choice([0, 1])))


@variant(PRODUCE, "newer epoch not from zero", valid=False)
def _(ctx: Context) -> Any:
    return _to(ctx, "fenced", _sequenced(2, 5, 3))


@variant(PRODUCE, "duplicate with another count", valid=False)
def _(ctx: Context) -> Any:
    last = ctx.world.last_sequence(ctx.version)
    return _to(ctx, "idempotent", _sequenced(1, last, values=(b"a", b"b", b"c")))
