"""Delivery and speed in words, and what librdkafka calls them.

`delivery` says what may happen to a message when something fails, `profile` what to favour while nothing does.
Anything librdkafka knows can be set over both with `config={…}`.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from penstock.client.connect import MESSAGE_BYTES_MAX
from penstock.client.errors import ClientError

Delivery = Literal["at-most-once", "at-least-once"]
Profile = Literal["latency", "balanced", "throughput"]
Settings = dict[str, Any]

# A broker that makes topics on first use needs a moment; a wrong name should not take librdkafka's 30 s to be noticed.
_TOPIC_APPEARS_MS = 5_000

_PRODUCER: dict[Profile, Settings] = {
    "latency": {"linger.ms": 0, "compression.type": "none", "queue.buffering.max.kbytes": 65_536},
    "balanced": {"linger.ms": 5, "compression.type": "lz4", "queue.buffering.max.kbytes": 131_072},
    "throughput": {
        "linger.ms": 50,
        "compression.type": "lz4",
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 262_144,
    },
}
_CONSUMER: dict[Profile, Settings] = {
    "latency": {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 16_384},
    "balanced": {"fetch.min.bytes": 1, "fetch.wait.max.ms": 500, "queued.max.messages.kbytes": 65_536},
    "throughput": {
        "fetch.min.bytes": 1_000_000,
        "fetch.wait.max.ms": 200,
        "fetch.message.max.bytes": 4_000_000,
        "queued.max.messages.kbytes": 131_072,
    },
}
_AT_MOST_ONCE: Settings = {"acks": "0", "enable.idempotence": False, "message.send.max.retries": 0}
# Idempotence keeps order and takes back the repeats that retries would make; what is left to "at least" is a
# producer that dies before it hears the answer and is started again.
_AT_LEAST_ONCE: Settings = {"acks": "all", "enable.idempotence": True}


def check_delivery(delivery: str) -> None:
    if delivery not in get_args(Delivery):
        raise ClientError(f"delivery={delivery!r} is not known: choose at-most-once or at-least-once")


def check_profile(profile: str) -> None:
    if profile not in get_args(Profile):
        raise ClientError(f"profile={profile!r} is not known: choose latency, balanced or throughput")


def producer_settings(delivery: Delivery, profile: Profile, config: Mapping[str, Any] | None) -> Settings:
    check_delivery(delivery)
    check_profile(profile)
    own = dict(config or {})
    settings: Settings = {
        "partitioner": "murmur2_random",  # as the Java client; librdkafka's own default is another hash
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "batch.size": 1_000_000,
        "topic.metadata.propagation.max.ms": _TOPIC_APPEARS_MS,
        **(_AT_MOST_ONCE if delivery == "at-most-once" else _AT_LEAST_ONCE),
        **_PRODUCER[profile],
    }
    acks = str(own.get("acks", own.get("request.required.acks", "all")))
    if acks not in ("all", "-1") and "enable.idempotence" not in own:
        settings["enable.idempotence"] = False  # librdkafka refuses the pair
    return settings | own


def consumer_settings(profile: Profile, config: Mapping[str, Any] | None) -> Settings:
    check_profile(profile)
    return {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "partition.assignment.strategy": "cooperative-sticky",
        **_CONSUMER[profile],
        **dict(config or {}),
    }
