"""The retry and dead-letter topics of a group: what lies there is the only copy that the group will still work on.

So nothing goes there by age or size, whatever the broker's defaults are: a back-off may be days long, a group may be
away for weeks, and dead letters lie until somebody looks at them. And whatever the source takes fits, with the headers
that say how it failed.
"""

import logging
import time
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError

from penstock.client.admin.admin import Admin
from penstock.client.errors import ClientError

logger = logging.getLogger("penstock.client")

# The history has at most 20 failures of 500 characters, of which each may take six bytes; and the rest.
HEADERS_BYTES_MAX = 65_536
# A message limit is a signed 32-bit number.
_MESSAGE_BYTES_MAX = 2**31 - 1
_FOR_EVER = -1
_TOPIC_APPEARS_SECONDS = 10.0
_TOPIC_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Needs:
    """What a topic beside `source` must have."""

    source: str
    partitions: int
    kept_seconds: float = 0.0  # what lies there waits for so long

    def message_bytes(self, source: dict[str, str]) -> int:
        return min(int(source["max.message.bytes"]) + HEADERS_BYTES_MAX, _MESSAGE_BYTES_MAX)


def ensure(admin: Admin, name: str, needs: Needs) -> None:
    """Make a topic, or make it grow; what else an existing one lacks is told."""
    made = False
    if not _exists(admin, name):
        made = _create(admin, name, needs)
    if not made:
        _await_topic(admin, name, 1)  # somebody else may just have made it
        if len(admin.partition_indexes(name)) < needs.partitions:
            with suppress(ClientError):  # another member of the group was quicker
                admin.add_partitions(name, needs.partitions)
    _await_topic(admin, name, needs.partitions)
    if not made:
        with suppress(ClientError):  # only a word of warning
            for lacking in _lacking(admin, name, needs):
                logger.warning("%s", lacking)


def _exists(admin: Admin, name: str) -> bool:
    try:
        admin.partition_indexes(name)
    except ClientError as error:
        if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False
    return True


def _create(admin: Admin, name: str, needs: Needs) -> bool:
    """False when somebody else has."""
    configs = {
        "cleanup.policy": "delete",
        "retention.ms": str(_FOR_EVER),
        "retention.bytes": str(_FOR_EVER),
        "max.message.bytes": str(needs.message_bytes(admin.settings_of_topic(needs.source))),
    }
    try:
        admin.create(name, partitions=needs.partitions, configs=configs)
    except ClientError as error:
        if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


def _lacking(admin: Admin, name: str, needs: Needs) -> list[str]:
    """What may be lost or refused in a topic that somebody else has made."""
    source, found = admin.settings_of_topic(needs.source), admin.settings_of_topic(name)
    lacking: dict[str, tuple[int | str, str]] = {}
    kept_ms, source_ms = int(found["retention.ms"]), int(source["retention.ms"])
    if kept_ms != _FOR_EVER and (
        source_ms == _FOR_EVER or kept_ms < max(source_ms, 2000 * needs.kept_seconds)
    ):
        lacking["retention.ms"] = (_FOR_EVER, "what waits there longer is deleted")
    kept_bytes, source_bytes = (int(of.get("retention.bytes", _FOR_EVER)) for of in (found, source))
    if kept_bytes != _FOR_EVER and (source_bytes == _FOR_EVER or kept_bytes < source_bytes):
        lacking["retention.bytes"] = (_FOR_EVER, "what waits there is deleted when more comes")
    if "compact" in found.get("cleanup.policy", "delete"):
        lacking["cleanup.policy"] = ("delete", "what waits there is dropped for a later one of its key")
    if int(found["max.message.bytes"]) < needs.message_bytes(source):
        lacking["max.message.bytes"] = (
            needs.message_bytes(source),
            f"it does not take every message of {needs.source}",
        )
    return [
        f"{name} has {setting}={found[setting]}: {why}; "
        f"`penstock topic alter {name} --config {setting}={better}` mends it"
        for setting, (better, why) in lacking.items()
    ]


def _await_topic(admin: Admin, name: str, partitions: int) -> None:
    """Brokers learn of a new topic one after another; a group that reads it too early is told it does not exist."""
    deadline = time.monotonic() + _TOPIC_APPEARS_SECONDS
    while True:
        try:
            if len(admin.partition_indexes(name)) >= partitions or time.monotonic() > deadline:
                return
        except ClientError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_TOPIC_LOOK_SECONDS)
