"""Where the logs of new replicas begin, and that they are durable when they are opened."""

import random
from pathlib import Path

import pytest
from tests.property.log_story import fail_once
from tests.unit.storage.logs import a_batch, append, sync

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.image import Topic
from penstock.coordination.nodes import PartitionState, Removed, RetirementState
from penstock.core.errors import StorageError
from penstock.services.hosting.log_opening import open_all
from penstock.storage.data_dir import DataDir
from penstock.storage.log import Log
from penstock.storage.recovered import Recovered
from penstock.testing.mem_files import MemFiles

PLAIN = PartitionState((1,), (1,), 1, 3)
RETIRED = PartitionState((1,), (1,), 1, 3, retirement=RetirementState(20, 0, 0, 3))


@pytest.mark.parametrize("partitions", [2, 30])
def test_a_log_begins_behind_what_its_number_had_however_many_are_made_with_it(partitions: int) -> None:
    data_dir = _opened(MemFiles())
    states = (*[PLAIN] * (partitions - 1), RETIRED)
    image = Topic("t", b"\1" * 16, states, {}, 0, removed={0: Removed(5, 7, 2)})
    config = TopicConfig.resolve({}, BrokerConfig.resolve({}))
    opened = open_all(data_dir, image, config, list(range(partitions)), node=1, vouched=False)
    begins = {}
    for index, recovered in opened.items():
        assert isinstance(recovered, Recovered)
        begins[index] = recovered.log.start_offset
    assert begins == {0: 7, **dict.fromkeys(range(1, partitions - 1), 0), partitions - 1: 20}


@pytest.mark.parametrize("operation", range(30))
def test_what_is_written_to_a_log_that_was_opened_at_the_second_try_survives_a_power_cut(
    operation: int,
) -> None:
    """Also where the broker was stopped cleanly before: that says nothing of what it made since."""
    config = TopicConfig.resolve({}, BrokerConfig.resolve({}))
    image = Topic("t", b"\1" * 16, (PLAIN,), {}, 0)
    for seed in range(5):
        files = MemFiles()
        _opened(files).close(clean=True)
        data_dir = _opened(files)
        assert data_dir.was_clean
        fail_once(files, operation)
        open_all(data_dir, image, config, [0], node=1, vouched=False)
        del files.enter
        log = _log(open_all(data_dir, image, config, [0], node=1, vouched=False))
        append(log, a_batch())
        sync(log)
        data_dir = _opened(files.crash(random.Random(seed)))
        assert _log(open_all(data_dir, image, config, [0], node=1, vouched=False)).end_offset == 1


def _log(opened: dict[int, Recovered | StorageError]) -> Log:
    assert isinstance(opened[0], Recovered)
    return opened[0].log


def _opened(files: MemFiles) -> DataDir:
    data_dir = DataDir(files, Path("/data"), random.Random(1))
    data_dir.open()
    return data_dir
