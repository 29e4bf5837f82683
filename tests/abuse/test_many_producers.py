"""Producers that are made up, a few in each of many partitions: no partition is full, and yet the broker's memory is.

The short form is `tests/unit/frontends/test_many_producers.py`: as many as a real broker takes need a minute.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, make_batch, produce_request

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PRODUCERS_ALL_MAX
from penstock.records.builder import BatchOptions
from penstock.wire.kafka.api_keys import ApiKey

_VERSION = 9
_PARTITIONS = 40
_AT_ONCE = 10


def write_under_ids(client: RawClient, topic: str, ids: Iterable[int], sequence: int = 0) -> Iterator[int]:
    """A batch from each, to all partitions in turns; the errors they were answered with."""
    waiting = list(ids)
    for first in range(0, len(waiting), _AT_ONCE * _PARTITIONS):
        some = waiting[first : first + _AT_ONCE * _PARTITIONS]
        rows = [some[at : at + _PARTITIONS] for at in range(0, len(some), _PARTITIONS)]
        for row in rows:
            options = [BatchOptions(producer_id=id_, producer_epoch=0, base_sequence=sequence) for id_ in row]
            batches = [
                (id_ % _PARTITIONS, make_batch([b""], of)) for id_, of in zip(row, options, strict=True)
            ]
            client.send_bytes(client.frame(ApiKey.PRODUCE, _VERSION, produce_request(topic, batches)))
        for _ in rows:
            for answer in client.receive().responses[0].partition_responses:
                yield answer.error_code


@pytest.mark.soak
def test_producers_of_all_partitions(scene: Scene) -> None:
    more = 10 * _PARTITIONS
    with RawClient(scene.port) as client:
        for topic in ("crowd", "other"):
            assert create_topic(client, topic, _PARTITIONS).error_code == 0
        errors = list(write_under_ids(client, "crowd", range(PRODUCERS_ALL_MAX + more)))
        refused = errors.count(ErrorCode.POLICY_VIOLATION)
        assert errors.count(0) == len(errors) - refused
        assert more <= refused <= more + _PARTITIONS, "the good client is one of them, perhaps"
        assert not any(errors[: PRODUCERS_ALL_MAX - _PARTITIONS])
        known = range(more)
        assert set(write_under_ids(client, "crowd", known, sequence=1)) == {0}
        strangers = range(1 << 30, (1 << 30) + more)
        assert set(write_under_ids(client, "other", strangers)) == {0}, "others' partitions have their share"
    taken = 250 * MEGABYTE
    bounds = replace(
        STRICT,
        memory_peak_bytes=taken + 64 * MEGABYTE,
        memory_after_bytes=taken,
        descriptors_after=200,
    )
    unhurt(scene, bounds)
