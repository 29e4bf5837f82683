"""A broker that answers as it is told: real sockets and real codecs, a script instead of a log.

`peer.on(ApiKey.FETCH, first, second)` gives the next two answers to that API; the last one is given for ever. An
answer is a message, a function of the request that makes one, raw bytes for the socket, CLOSE or SILENCE.
"""

import socket
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from penstock.client.raw import RawOptions
from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    api_versions,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from penstock.wire.kafka.headers import decode_request_header, encode_response_header, response_header_version
from penstock.wire.kafka.messages import request_module, version_range

CLOSE = "close"
SILENCE = "silence"
TOPIC_ID = uuid.UUID(int=7)
SPOKEN = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.LIST_OFFSETS,
    ApiKey.FETCH,
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
)
# Tries again at once, and gives up soon where a test makes it.
QUICK = RawOptions(retry_backoff_ms=1, retry_backoff_max_ms=4, api_timeout_ms=30_000)

Answer = Any


class Asked(NamedTuple):
    version: int
    message: Any


class FakePeer:
    def __init__(self, node: int = 1) -> None:
        self.node = node
        self.versions = {key: version_range(key) for key in SPOKEN}
        self.nodes: dict[int, FakePeer] = {node: self}
        self.leaders: dict[str, dict[int, int]] = {"t": {0: node}}
        self.leader_epoch = 3
        self.cluster_id: str | None = "here"
        self.topic_ids: dict[str, uuid.UUID | None] = {"t": TOPIC_ID}
        self.asked: defaultdict[ApiKey, list[Asked]] = defaultdict(list)
        self.connections = 0
        self._scripts: dict[ApiKey, list[Answer]] = {
            ApiKey.METADATA: [self._metadata],
            ApiKey.INIT_PRODUCER_ID: [
                init_producer_id.InitProducerIdResponse(producer_id=9, producer_epoch=0)
            ],
        }
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for connection in self._open:
            with connection:
                self._hang_up(connection)
        for thread in self._threads[1:]:
            thread.join()

    def on(self, api: ApiKey, *answers: Answer) -> None:
        self._scripts[api] = list(answers)

    def wait_for_asked(self, api: ApiKey, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked[api]) >= count, 60), f"{count} of {api!r}"

    # -- the server ---------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while (frame := _read_frame(connection)) and self._answer(connection, frame):
                pass
        except OSError:
            return
        finally:
            self._hang_up(connection)

    @staticmethod
    def _hang_up(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        header, position = decode_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        if api == ApiKey.API_VERSIONS and version > self.versions[api][1]:
            answer: Answer = self._api_versions(ErrorCode.UNSUPPORTED_VERSION)
            version = 0
        else:
            message, end = request_module(api).decode_request(frame, position, version)
            assert end == len(frame)
            with self._changed:
                self.asked[api].append(Asked(version, message))
                self._changed.notify_all()
            answer = self._scripted(api, message)
        if answer is CLOSE:
            return False
        if answer is SILENCE:
            return True
        if not isinstance(answer, bytes):
            body = request_module(api).encode_response(answer, version)
            head = encode_response_header(header.correlation_id, response_header_version(api, version))
            answer = (len(head) + len(body)).to_bytes(4, "big") + head + body
        connection.sendall(answer)
        return True

    def _scripted(self, api: ApiKey, message: Any) -> Answer:
        if api == ApiKey.API_VERSIONS:
            return self._api_versions(ErrorCode.NONE)
        script = self._scripts[api]
        answer = script.pop(0) if len(script) > 1 else script[0]
        return answer(message) if isinstance(answer, Callable) else answer  # type: ignore[arg-type]

    def _api_versions(self, code: int) -> api_versions.ApiVersionsResponse:
        rows = [
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return api_versions.ApiVersionsResponse(error_code=code, api_keys=rows)

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        assert not request.allow_auto_topic_creation
        names = (
            list(self.leaders) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=peer.port)
                for node, peer in self.nodes.items()
            ],
            cluster_id=self.cluster_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        if name not in self.leaders:
            return metadata.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        topic_id = self.topic_ids[name]
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=self.leader_epoch
            )
            for number, leader in self.leaders[name].items()
        ]
        return metadata.MetadataResponseTopic(
            name=name, topic_id=bytes(16) if topic_id is None else topic_id.bytes, partitions=partitions
        )


def _read_frame(connection: socket.socket) -> bytes:
    size = _read_exactly(connection, 4)
    return _read_exactly(connection, int.from_bytes(size, "big")) if size else b""


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)


# -- answers ----------------------------------------------------------------------------------------------------


def batch_at(offset: int, values: Sequence[bytes]) -> bytes:
    records = [
        Record(offset=offset + i, timestamp=1, key=None, value=value) for i, value in enumerate(values)
    ]
    return bytes(build_batch(records, BatchOptions(base_offset=offset)))


def fetched(
    records: bytes | None = None, *, error: int = 0, aborted: Sequence[tuple[int, int]] | None = None
) -> fetch.FetchResponse:
    transactions = None
    if aborted is not None:
        transactions = [fetch.AbortedTransaction(producer_id=pid, first_offset=at) for pid, at in aborted]
    data = fetch.PartitionData(
        error_code=error,
        high_watermark=100,
        last_stable_offset=90,
        log_start_offset=2,
        aborted_transactions=transactions,
        records=records,
    )
    topic = fetch.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID.bytes, partitions=[data])
    return fetch.FetchResponse(responses=[topic])


def produced(offset: int = -1, *, error: int = 0, partition: int = 0) -> produce.ProduceResponse:
    row = produce.PartitionProduceResponse(index=partition, error_code=error, base_offset=offset)
    topic = produce.TopicProduceResponse(name="t", topic_id=TOPIC_ID.bytes, partition_responses=[row])
    return produce.ProduceResponse(responses=[topic])


def offset_found(offset: int, *, error: int = 0, timestamp: int = -1) -> list_offsets.ListOffsetsResponse:
    partition = list_offsets.ListOffsetsPartitionResponse(
        error_code=error, offset=offset, timestamp=timestamp
    )
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[partition])
    return list_offsets.ListOffsetsResponse(topics=[topic])
