"""How far letters of a topic were replayed, written down where it does not expire: `<topic>.<group>.dlq.replayed`.

One record for each partition and batch; the largest counts. None of them is ever deleted, and they are far fewer than
the letters.
"""

from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import KafkaError

from penstock.client.admin.admin import Admin
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retry import topics as retry_topics


class ReplayMarks:
    def __init__(
        self,
        admin: Admin,
        read: Callable[[str, dict[int, tuple[int, int]]], Iterator[Message]],
        name: str,
        topic: str,
    ) -> None:
        self._admin = admin
        self._read = read
        self._letters = name
        self._name = f"{name}.replayed"
        # A dead-letter topic that was deleted and made again begins anew.
        self._key = f"{topic}/{admin.topic_id(name)}/"

    def read(self) -> dict[int, int]:
        try:
            self._admin.partition_indexes(self._name)
        except ClientError as error:
            if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return {}
        partitions = self._admin.describe_new(self._name).partitions  # another replay may just have made it
        ends = {partition.index: (partition.earliest or 0, partition.latest or 0) for partition in partitions}
        found: dict[int, int] = {}
        mine = self._key.encode()
        for mark in self._read(self._name, ends):
            if mark.key is not None and mark.key.startswith(mine) and mark.raw_value is not None:
                partition = int(mark.key.removeprefix(mine))
                found[partition] = max(int(mark.raw_value), found.get(partition, 0))
        return found

    def make(self) -> None:
        retry_topics.ensure(self._admin, self._name, retry_topics.Needs(self._letters, 1))

    def write(self, producer: Producer, batch: Iterable[Message]) -> None:
        """Before the commit: what is marked was acknowledged."""
        ends = {letter.partition: letter.offset + 1 for letter in batch}
        for partition, end in ends.items():
            producer.send(self._name, str(end), key=f"{self._key}{partition}").result()
