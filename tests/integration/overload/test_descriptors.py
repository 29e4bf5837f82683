"""More partitions than a process may have files open: all of them work, clients get in, and a killed broker starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.raw import (
    RawClient,
    create_topic,
    make_batch,
    open_descriptors,
    produced,
    read_log,
)

from penstock.core.descriptors import Shares
from penstock.core.error_codes import ErrorCode as E
from penstock.core.limits import PARTITIONS_PER_FILE_MAX
from penstock.testing import BrokerProcess

LIMIT = 64
PARTITIONS = 48


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh"]
    broker_process = BrokerProcess(tmp_path / "data", prefix=limited)
    broker_process.start()
    yield broker_process
    broker_process.stop()


def write_to_all(port: int, topic: str) -> None:
    with RawClient(port) as client:
        for partition in range(PARTITIONS):
            answer = produced(client, topic, make_batch([b"%d" % partition]), partition=partition)
            assert answer.error_code == E.NONE, (partition, E(answer.error_code))


def test_more_partitions_than_descriptors_work_and_survive_a_kill(process: BrokerProcess) -> None:
    with RawClient(process.port) as client:
        assert create_topic(client, "many", PARTITIONS).error_code == E.NONE
        too_many = Shares.of(LIMIT).files * PARTITIONS_PER_FILE_MAX
        refused = create_topic(client, "too-many", too_many)
        assert refused.error_code == E.POLICY_VIOLATION
        assert "ulimit -n" in refused.error_message
    write_to_all(process.port, "many")
    assert open_descriptors(process.pid) < LIMIT - 10
    process.kill()
    process.start()
    write_to_all(process.port, "many")
    for partition in range(PARTITIONS):
        assert read_log(process.port, "many", partition) == [b"%d" % partition] * 2
    assert len(process.log_path.read_text().splitlines()) < 50


def test_segments_that_never_end_take_no_log_offline(process: BrokerProcess) -> None:
    """A topic with `segment.ms=1`: a segment, and a file, for each of its batches."""
    with RawClient(process.port) as client:
        assert create_topic(client, "rolling", configs={"segment.ms": "1"}).error_code == E.NONE
        for number in range(LIMIT):
            answer = produced(client, "rolling", make_batch([b"%d" % number], timestamp=1000 + 10 * number))
            assert answer.error_code == E.NONE, number
    values = read_log(process.port, "rolling")
    assert values == [b"%d" % number for number in range(LIMIT)]
