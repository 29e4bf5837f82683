"""What groups committed while topics were deleted and made again, and what of it may, and what must, be seen later.

Each commit has a number, which is the offset that it commits: whatever is seen later tells by it when it was sent and
answered. One that was under way while a topic was deleted may be of either.
"""

from collections import Counter
from dataclasses import dataclass

from tests.sim.cluster_clients import Violation
from tests.sim.cluster_story import bytes_below

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.groups.records.keys import OffsetKey, decode_key
from penstock.groups.records.offset_value import decode_offset_value
from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.wire.kafka.generated import offset_fetch


@dataclass
class Commit:
    key: OffsetKey
    over: Counter[str]  # deletions of each topic that every broker had heard of when it was sent
    begun: Counter[str] | None = None  # and those that had been asked for when it was answered
    acknowledged: bool = False


def shown_offsets(group: offset_fetch.OffsetFetchResponseGroup) -> dict[OffsetKey, int]:
    return {
        OffsetKey(group.group_id, topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


class CommitHistory:
    def __init__(self, topics: set[str]) -> None:
        self.topics = topics  # of those that are committed for, which there are
        self.begun, self.over = Counter[str](), Counter[str]()  # deletions, by topic
        self._commits: list[Commit] = []  # by their numbers

    def send(self, key: OffsetKey) -> int:
        self._commits.append(Commit(key, self.over.copy()))
        return len(self._commits) - 1

    def answered(self, number: int, code: ErrorCode) -> None:
        commit = self._commits[number]
        commit.begun, commit.acknowledged = self.begun.copy(), code is ErrorCode.NONE

    @property
    def acknowledged(self) -> int:
        return sum(commit.acknowledged for commit in self._commits)

    def check_group(self, group: str, shown: dict[OffsetKey, int]) -> None:
        for key, number in shown.items():
            if key.topic not in self.topics or self._commits[number].key != key:
                raise Violation(f"{key} is shown to be at {number}")
            self._check_age(number, OFFSETS_TOPIC, key.topic)
        for number, commit in enumerate(self._commits):
            # A later one may be stored although it was refused, or not.
            is_lost = self._must_be_there(commit) and shown.get(commit.key, -1) < number
            if commit.key.group == group and is_lost:
                raise Violation(f"{commit.key} was committed at {number}, is at {shown.get(commit.key)}")

    def _must_be_there(self, commit: Commit) -> bool:
        if not commit.acknowledged or commit.key.topic not in self.topics:
            return False
        return all(commit.over[name] == self.begun[name] for name in (OFFSETS_TOPIC, commit.key.topic))

    def _check_age(self, number: int, *topics: str) -> None:
        """It was not answered before one of these topics was deleted for the last time."""
        begun = self._commits[number].begun
        if begun is None or any(begun[name] < self.begun[name] for name in topics):
            raise Violation(f"{number}, {self._commits[number]}, is there although {self.begun} were deleted")

    def check_replicas(self, replicas: list[Partition]) -> None:
        """The same everywhere, and nothing that was not written to this one."""
        logs = {(r.topic_id, r.log.start_offset, r.log.end_offset, r.high_watermark) for r in replicas}
        if len(logs) != 1:
            raise Violation(f"the replicas of {replicas[0].index} differ: {logs}")
        contents = {bytes_below(replica, replica.high_watermark) for replica in replicas}
        if len(contents) != 1:
            raise Violation(f"the replicas of {replicas[0].index} have other records")
        committed = set()
        for record in read_all(memoryview(contents.pop())):
            key = decode_key(record.key or b"")
            if record.value is None:
                if key not in committed:
                    raise Violation(f"{key} is deleted in a log that never had it")
                continue
            number = decode_offset_value(record.value).offset
            if self._commits[number].key != key:
                raise Violation(f"{key} is stored at {number}")
            self._check_age(number, OFFSETS_TOPIC)
            committed.add(key)
