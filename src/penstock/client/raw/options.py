"""The raw client's settings, under the names that Kafka's clients have for them.

Three kinds of names (the tables below): honoured, accepted without effect, and refused because the
client would silently do something else than was asked. Any other name is refused with the nearest known one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from penstock.client.raw.errors import OptionError

_KB = 1024
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOptions:
    client_id: str = "penstock"
    connect_timeout_ms: int = 10_000
    # How long one request may go unanswered before its connection is given up.
    request_timeout_ms: int = 30_000
    # How long an operation is tried again; a fetch has so long from one answer with records to the next.
    api_timeout_ms: int = 60_000
    # The same for a batch given to a producer.
    delivery_timeout_ms: int = 120_000
    retries_max: int = 0x7FFFFFFF
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # -1: the kernel sizes the socket's buffers.
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1
    # Large enough that round trips do not count; each fetch is held in memory twice.
    fetch_bytes: int = 4 * _MB
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 500
    committed: bool = False
    acks: int = -1
    requests_in_flight_max: int = 5
    request_bytes_max: int = 4 * _MB
    # Batches that a producer holds, sent or not, before `send` waits.
    in_flight_bytes_max: int = 32 * _MB
    # For those who make batches: this client takes them as they are.
    compression: str = "none"
    batch_bytes: int = 1 * _MB

    @classmethod
    def from_kafka(cls, settings: Mapping[str, object]) -> "RawOptions":
        """From a Kafka client's settings; OptionError names the one that is wrong."""
        values: dict[str, Any] = {}
        fetch_bytes: list[int] = []
        for name, given in settings.items():
            if name in _FETCH_BYTES:
                fetch_bytes.append(_whole(1, _FETCH_BYTES_MAX)(name, given))
            elif name in HONOURED:
                field, parse = HONOURED[name]
                values[field] = parse(name, given)
            elif (why := _refusal(name, given)) is not None:
                raise OptionError(f"{name}={given}: {why}")
            elif name not in WITHOUT_EFFECT and name not in _PLAINTEXT_ONLY:
                raise OptionError(f"{name} is no setting of a Kafka client{_nearest(name)}")
        if fetch_bytes:
            # One fetch is for one partition, so both bounds hold for it.
            values["fetch_bytes"] = min(fetch_bytes)
        return cls(**values)


Parser = Callable[[str, object], Any]


def _whole(low: int, high: int) -> Parser:
    def parse(name: str, given: object) -> int:
        try:
            number = int(str(given).strip())
        except ValueError:
            raise OptionError(f"{name}={given}: give a whole number") from None
        if not low <= number <= high:
            raise OptionError(f"{name}={given}: give a number from {low} to {high}")
        return number

    return parse


def _one_of(choices: Mapping[str, object]) -> Parser:
    def parse(name: str, given: object) -> object:
        key = str(given).strip().lower()
        if key not in choices:
            raise OptionError(f"{name}={given}: give one of {', '.join(choices)}")
        return choices[key]

    return parse


def _text(_: str, given: object) -> str:
    return str(given)


def _nearest(name: str) -> str:
    known = [*HONOURED, *_FETCH_BYTES, *WITHOUT_EFFECT, *_PLAINTEXT_ONLY]
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]}?" if close else ": remove it"


def _refusal(name: str, given: object) -> str | None:
    if name.startswith(("sasl.", "ssl.")):
        return "this client speaks PLAINTEXT only: use a PLAINTEXT listener and remove this setting"
    if name in _PLAINTEXT_ONLY:
        if str(given).strip().upper() == "PLAINTEXT":
            return None
        return "this client speaks PLAINTEXT only: give the address of a PLAINTEXT listener"
    return REFUSED.get(name)


_MS = _whole(0, 0x7FFFFFFF)
_BUFFER = _whole(-1, 0x7FFFFFFF)
# A response may have 100 MB, and a first batch larger than asked for comes whole.
_FETCH_BYTES_MAX = 0x7FFFFFFF
_CODECS = {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}
_FETCH_BYTES = ("fetch.max.bytes", "max.partition.fetch.bytes")
_PLAINTEXT_ONLY = ("security.protocol",)

# What each sets here. `fetch.max.bytes` and `max.partition.fetch.bytes` are honoured too, the smaller of them.
HONOURED: dict[str, tuple[str, Parser]] = {
    "client.id": ("client_id", _text),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _whole(1, 0x7FFFFFFF)),
    "request.timeout.ms": ("request_timeout_ms", _whole(1, 0x7FFFFFFF)),
    "default.api.timeout.ms": ("api_timeout_ms", _MS),
    "max.block.ms": ("api_timeout_ms", _MS),
    "delivery.timeout.ms": ("delivery_timeout_ms", _MS),
    "retries": ("retries_max", _MS),
    "retry.backoff.ms": ("retry_backoff_ms", _MS),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _MS),
    "receive.buffer.bytes": ("receive_buffer_bytes", _BUFFER),
    "send.buffer.bytes": ("send_buffer_bytes", _BUFFER),
    "fetch.min.bytes": ("fetch_min_bytes", _whole(0, 0x7FFFFFFF)),
    "fetch.max.wait.ms": ("fetch_wait_ms", _MS),
    "isolation.level": ("committed", _one_of({"read_uncommitted": False, "read_committed": True})),
    "acks": ("acks", _one_of({"all": -1, "-1": -1, "1": 1, "0": 0})),
    # Brokers remember five batches per producer: more in flight could not be told from new ones after a retry.
    "max.in.flight.requests.per.connection": ("requests_in_flight_max", _whole(1, 5)),
    "max.request.size": ("request_bytes_max", _whole(1, 0x7FFFFFFF)),
    "buffer.memory": ("in_flight_bytes_max", _whole(1, 1 << 62)),
    "compression.type": ("compression", _one_of(_CODECS)),
    "batch.size": ("batch_bytes", _whole(0, 0x7FFFFFFF)),
}

# Right for Kafka's clients and harmless here: there is no group, no poll, no linger, and leaders are asked again
# whenever one has moved. Producers are always idempotent, topics are never made by asking for them, CRCs are checked
# by whoever opens the batches.
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "enable.idempotence",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.unfinished.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "transaction.timeout.ms",
    }
)

_BYTES = "keys and values pass as bytes: convert them before or after"
REFUSED: dict[str, str] = {
    "bootstrap.servers": "the address is given apart from the settings",
    "auto.offset.reset": "say from which offsets to read; none is chosen behind your back",
    "enable.auto.commit": "offsets are the caller's to keep: nothing is committed to a group",
    "transactional.id": "this client does not write transactions: remove it",
    "interceptor.classes": "Java classes cannot run here: remove it",
    "partitioner.class": "Java classes cannot run here: name the partition of each record instead",
    "partitioner.ignore.keys": "give records without a key instead",
    "security.providers": "this client speaks PLAINTEXT only: remove it",
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
}
