"""`kill -9` of the broker during commits: no committed offset goes back. A damaged log costs no more than it held.

`PENSTOCK_CRASH_ROUNDS` makes it longer.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.integration.groups.raw_member import commit, committed, find
from tests.integration.raw import RawClient, create_topic, wait_until

from penstock.core.error_codes import ErrorCode
from penstock.groups.partitioning import partition_of
from penstock.testing import BrokerProcess

ROUNDS = int(os.environ.get("PENSTOCK_CRASH_ROUNDS", "3"))
GROUPS = [f"group-{number}" for number in range(8)]
COMMITS_BEFORE_KILL = 400
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", {"offsets.topic.num.partitions": "4"})
    process.start()
    with RawClient(process.port) as client:
        find(client)
        assert create_topic(client, "orders").error_code == 0
    yield process
    process.stop()


class Committer:
    """Commits 1, 2, 3 … for one group, and notes what was acknowledged."""

    def __init__(self, port: int, group: str) -> None:
        self._port = port
        self.group = group
        self.acknowledged = 0
        self.sent = 0
        self.failure: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                with suppress(OSError), RawClient(self._port) as client:
                    self._commit_all(client)
                self.stopped.wait(0.02)  # while nobody listens
        except BaseException as error:
            self.failure = error
            raise

    def _commit_all(self, client: RawClient) -> None:
        while not self.stopped.is_set():
            self.sent += 1
            code = commit(client, "orders", self.sent, group=self.group)
            if code is ErrorCode.NONE:
                self.acknowledged = self.sent
            else:
                assert code in RETRIED, code


def test_no_committed_offset_goes_back(running: BrokerProcess) -> None:
    committers = [Committer(running.port, group) for group in GROUPS]
    threads = [threading.Thread(target=committer.run) for committer in committers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(ROUNDS):
            goal = sum(committer.acknowledged for committer in committers) + COMMITS_BEFORE_KILL
            wait_until(
                lambda goal=goal: sum(committer.acknowledged for committer in committers) >= goal,
                "commits go on",
            )  # type: ignore[misc]
            before = {committer.group: committer.acknowledged for committer in committers}
            running.kill()
            running.start()
            with RawClient(running.port) as client:
                for group, offset in before.items():
                    assert committed(client, group, "orders") >= offset
    finally:
        for committer in committers:
            committer.stopped.set()
        for thread in threads:
            thread.join()
    assert [committer.failure for committer in committers] == [None] * len(committers)
    running.kill()
    running.start()
    with RawClient(running.port) as client:
        for committer in committers:
            assert committer.acknowledged <= committed(client, committer.group, "orders") <= committer.sent


def test_a_damaged_record_costs_what_it_held_and_is_reported(running: BrokerProcess) -> None:
    victim, others = GROUPS[0], GROUPS[1:]
    home = partition_of(victim, 4)
    assert any(partition_of(group, 4) == home for group in others), "some group shares the victim's partition"
    with RawClient(running.port) as client:
        for group in GROUPS:
            assert commit(client, "orders", 7, group=group, metadata=f"note of {group}") is ErrorCode.NONE
    running.stop()
    (segment,) = running.data_dir.glob(f"**/__consumer_offsets/Partition-{home}/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(f"note of {victim}".encode())
    data[at] ^= 0xFF
    segment.write_bytes(data)
    running.start()
    with RawClient(running.port) as client:
        for group in others:
            assert committed(client, group, "orders") == 7
        assert committed(client, victim, "orders") == -1
        assert commit(client, "orders", 8, group=victim) is ErrorCode.NONE
        assert committed(client, victim, "orders") == 8
    assert f"__consumer_offsets-{home} is damaged" in running.log_path.read_text()
