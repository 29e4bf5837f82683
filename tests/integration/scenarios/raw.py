"""Requests as raw frames over a socket, below every client library."""

from __future__ import annotations

import importlib
import itertools
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

from tests.integration.scenarios.proxy import HOST, ConnectionCutError, read_frame

from penstock.wire.kafka.generated import fetch
from penstock.wire.kafka.generated.index import APIS

if TYPE_CHECKING:
    from types import ModuleType

CLIENT_ID = b"raw"
API_VERSIONS = 18
BATCH_HEADER_BYTES = 61
LENGTH_AT = 8
ATTRIBUTES_AT = 21
CODEC_MASK = 0x07
ANSWER_TIMEOUT_S = 60.0


def codec_module(api_key: int) -> ModuleType:
    return importlib.import_module(f"penstock.wire.kafka.generated.{APIS[api_key][0]}")


def request_header(api_key: int, version: int, correlation_id: int) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return header + b"\x00" if version >= APIS[api_key][3] else header


def response_body_at(api_key: int, version: int) -> int:
    """Where the body begins in an answer (its length prefix not counted)."""
    # ApiVersions answers with the oldest header whatever the version, so that any client can read it.
    return 5 if version >= APIS[api_key][3] and api_key != API_VERSIONS else 4


class RawConnection:
    """One connection; a request and its answer at a time."""

    def __init__(self, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=timeout_s)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, api_key: int, version: int, body: bytes) -> None:
        frame = request_header(api_key, version, next(self._correlation_ids)) + body
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """The next answer without its length prefix; None when the broker closed the connection."""
        try:
            return read_frame(self._socket)[4:]
        except (ConnectionCutError, ConnectionError):
            return None

    def call(self, api_key: int, version: int, request: Any) -> Any:
        """Send a message of the generated codecs and decode its answer."""
        module = codec_module(api_key)
        self.send(api_key, version, module.encode_request(request, version))
        # Nothing is shown by how long this one takes.
        timeout_s = self._socket.gettimeout()
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        try:
            answer = self.receive()
        finally:
            self._socket.settimeout(timeout_s)
        if answer is None:
            raise ConnectionError(f"the broker closed the connection on API {api_key} v{version}")
        return module.decode_response(answer, response_body_at(api_key, version), version)[0]


def stored_codecs(port: int, topic: str, partition: int) -> list[int]:
    """The compression codecs of the batches in a partition's log, each once."""
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 26,
        session_epoch=-1,
        topics=[
            fetch.FetchTopic(
                topic=topic,
                partitions=[
                    fetch.FetchPartition(
                        partition=partition,
                        fetch_offset=0,
                        current_leader_epoch=-1,
                        partition_max_bytes=1 << 26,
                    )
                ],
            )
        ],
    )
    with RawConnection(port) as connection:
        answer = connection.call(fetch.API_KEY, 11, request)
    log = bytes(answer.responses[0].partitions[0].records or b"")
    return sorted({attributes & CODEC_MASK for attributes in _attributes(log)})


def _attributes(log: bytes) -> list[int]:
    found = []
    position = 0
    while position + BATCH_HEADER_BYTES <= len(log):
        found.append(struct.unpack_from(">h", log, position + ATTRIBUTES_AT)[0])
        position += 12 + struct.unpack_from(">i", log, position + LENGTH_AT)[0]
    return found
