"""A blocking client below every client library, for tests that misbehave on purpose and for their neighbours."""

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import HEADER_BYTES
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection, Response
from penstock.wire.kafka.generated import create_topics, fetch, list_offsets, produce

HOST = "127.0.0.1"
# Where a broker hangs, the test shall fail rather than wait for ever; nothing is measured with it.
HANG_SECONDS = 60.0
PRODUCE_VERSION = 9
FETCH_VERSION = 12
LATEST = -1


class RawClient:
    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None, host: str = HOST) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(HANG_SECONDS)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self._connection = ClientConnection("raw", responses_owed_max=1 << 30)
        self._arrived: deque[Response] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, api_key: int, version: int, message: Any, *, answered: bool = True) -> bytes:
        """A request's bytes, for the caller to send: whole, cut, changed or many at once."""
        return self._connection.send(api_key, version, message, answered=answered)[1]

    def body_frame(self, api_key: int, version: int, body: bytes) -> bytes:
        return self._connection.send_body(api_key, version, body)[1]

    def receive(self) -> Any:
        """The next answer, decoded; ConnectionError when the broker closed instead."""
        return self.receive_undecoded().message()

    def receive_undecoded(self) -> Response:
        while not self._arrived:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._arrived.extend(self._connection.receive(data))
        return self._arrived.popleft()

    def call(self, api_key: int, version: int, message: Any) -> Any:
        self.send_bytes(self.frame(api_key, version, message))
        return self.receive()

    def is_closed(self) -> bool:
        """Waits for the broker's next move: True when it closes, False when it says anything."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True


def outcome(port: int, data: bytes) -> str:
    """What the broker does with bytes on a connection of their own: 'answered' or 'closed'."""
    with RawClient(port) as client:
        with suppress(ConnectionError):  # it may be refused before all of it was sent
            client.send_bytes(data)
        return "closed" if client.is_closed() else "answered"


# -- requests a test needs again and again ------------------------------------------------------------------


def make_batch(values: Sequence[bytes], options: BatchOptions | None = None, timestamp: int = 1) -> bytearray:
    records = [Record(offset=i, timestamp=timestamp, key=None, value=value) for i, value in enumerate(values)]
    return build_batch(records, options or BatchOptions())


def produce_request(
    topic: str, batches: Sequence[tuple[int, bytes | bytearray | None]], acks: int = -1
) -> produce.ProduceRequest:
    data = [
        produce.PartitionProduceData(index=number, records=None if batch is None else bytes(batch))
        for number, batch in batches
    ]
    topics = [produce.TopicProduceData(name=topic, partition_data=data)]
    return produce.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics)


def produced(
    client: RawClient, topic: str, batch: bytes | bytearray | None, *, partition: int = 0, version: int = 9
) -> Any:
    """The answer for the one batch of a Produce request."""
    request = produce_request(topic, [(partition, batch)])
    return client.call(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]


def fetch_request(
    topic: str, offset: int, *, partition_max_bytes: int = 1 << 20, **fields: Any
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=fields.pop("partition", 0), fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    settings = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "session_epoch": -1}
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic=topic, partitions=[partition])], **settings | fields
    )


def fetched(client: RawClient, topic: str, offset: int, **fields: Any) -> Any:
    request = fetch_request(topic, offset, **fields)
    return client.call(ApiKey.FETCH, FETCH_VERSION, request).responses[0].partitions[0]


def values_in(records: Any) -> list[bytes | None]:
    """The values of whole batches as Fetch returns them."""
    view, values, position = memoryview(records or b""), [], 0
    while position + HEADER_BYTES <= len(view):
        size = 12 + int.from_bytes(view[position + 8 : position + 12], "big")
        values += [record.value for record in read_all(view[position : position + size])]
        position += size
    return values


def read_log(port: int, topic: str, partition: int = 0) -> list[bytes | None]:
    """Every value of a partition, checked to be as many as its offsets."""
    values: list[bytes | None] = []
    with RawClient(port) as client:
        end = end_offset(client, topic, partition)
        while len(values) < end:
            answer = fetched(client, topic, len(values), partition=partition, partition_max_bytes=1 << 24)
            assert answer.error_code == ErrorCode.NONE
            values += values_in(answer.records)
    return values


def create_topic(
    client: RawClient, name: str, partitions: int = 1, configs: dict[str, str | None] | None = None
) -> Any:
    settings = [create_topics.CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()]
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=settings
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    return client.call(ApiKey.CREATE_TOPICS, 7, request).topics[0]


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    wanted = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    topics = [list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])]
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    answer = client.call(ApiKey.LIST_OFFSETS, 6, request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return int(answer.offset)


# -- watching the broker ------------------------------------------------------------------------------------


def anonymous_bytes(pid: int) -> int:
    """RssAnon: the memory that is the process's own, without files it has mapped or cached."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError("no RssAnon in /proc/PID/status: it has ended")


def metric(console_url: str, name: str) -> float:
    """A number from /metrics, by its name with labels as it is written there."""
    with urlopen(f"{console_url.rstrip('/')}/metrics", timeout=HANG_SECONDS) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[-1])
    raise AssertionError(f"no metric {name}")


def open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = HANG_SECONDS) -> None:
    """Ask again until it holds; asking takes a round trip to the broker or the kernel, so this does not spin idly."""
    pause = threading.Event()
    for _ in range(int(patience_s / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError(f"never happened: {what}")


@dataclass
class Neighbour:
    """A well-behaved client on connections of its own: writes, reads what it wrote, and notes all it was told."""

    port: int
    topic: str
    acknowledged: int = 0
    failure: BaseException | None = None
    peak_bytes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self, pid: int) -> None:
        try:
            with RawClient(self.port) as writer, RawClient(self.port) as reader:
                while not self._stop.is_set():
                    self._round(writer, reader)
                    self.peak_bytes = max(self.peak_bytes, anonymous_bytes(pid))
        except BaseException as error:
            self.failure = error

    def _round(self, writer: RawClient, reader: RawClient) -> None:
        value = b"%d" % self.acknowledged
        answer = produced(writer, self.topic, make_batch([value]))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, self.acknowledged)
        found = fetched(reader, self.topic, self.acknowledged)
        assert (found.error_code, values_in(found.records)) == (ErrorCode.NONE, [value])
        self.acknowledged += 1

    def wait_for_rounds(self, count: int) -> None:
        goal = self.acknowledged + count
        wait_until(lambda: self.acknowledged >= goal or self.failure is not None, "the neighbour is served")
        assert self.failure is None, f"the neighbour was disturbed: {self.failure!r}"

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def neighbour(port: int, pid: int, topic: str) -> Iterator[Neighbour]:
    """One that is at work inside the block, and finds afterwards everything it ever wrote."""
    with RawClient(port) as client:
        assert create_topic(client, topic).error_code == ErrorCode.NONE
    bystander = Neighbour(port, topic)
    thread = threading.Thread(target=bystander.run, args=(pid,))
    thread.start()
    try:
        bystander.wait_for_rounds(3)
        yield bystander
        bystander.wait_for_rounds(3)
    finally:
        bystander.stop()
        thread.join()
    assert bystander.failure is None, f"the neighbour was disturbed: {bystander.failure!r}"
    assert read_log(port, topic) == [b"%d" % number for number in range(bystander.acknowledged)]
