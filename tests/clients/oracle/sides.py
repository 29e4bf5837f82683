"""One broker under comparison: its connection, and the names that are its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import API_VERSIONS, METADATA, PRODUCE
from tests.integration.scenarios.raw import RawConnection, codec_module, response_body_at

from penstock.wire.kafka.generated import api_versions, metadata
from penstock.wire.kafka.generated.index import APIS
from penstock.wire.kafka.primitives import DecodeError

if TYPE_CHECKING:
    from tests.clients.oracle.model import Case

ANSWER_TIMEOUT_S = 10.0
# What a broker's own directory is called.
DATA_DIR = "<data dir>"
CLOSED = "closed"
NO_ANSWER = "no answer"
SILENT = "silent, connection open"
UNDECODABLE = "undecodable answer"
ANSWERED = "answered"
# Refused as a whole: the answer has the shape of version 0.
FIRST_PRODUCE_VERSION = 3


@dataclass(frozen=True)
class Outcome:
    kind: str
    message: Any = None


@dataclass
class Side:
    name: str
    port: int
    # Texts that are this broker's own (ports, directories), each with what to call it.
    own_texts: dict[str, str] = field(default_factory=dict)
    node_id: int = -1
    cluster_id: str = ""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    topic_names: dict[bytes, str] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)
    sessions: dict[str, int] = field(default_factory=dict)
    # Of each group the member that requests speak for, and the generation it knows.
    members: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    member_names: dict[str, str] = field(default_factory=dict)
    _waiting: list[RawConnection] = field(default_factory=list)
    _connection: RawConnection | None = None

    def connection(self) -> RawConnection:
        if self._connection is None:
            self._connection = RawConnection(self.port, ANSWER_TIMEOUT_S)
        return self._connection

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.drop()
        for connection in self._waiting:
            connection.close()

    def leave_waiting(self, api_key: int, version: int, message: Any) -> None:
        """A request whose answer nobody waits for, on a connection of its own."""
        connection = RawConnection(self.port, ANSWER_TIMEOUT_S)
        connection.send(api_key, version, encode(api_key, version, message))
        self._waiting.append(connection)

    def know_member(self, group: str, member_id: str, generation: int) -> None:
        self.members[group] = member_id
        self.member_names[member_id] = group
        if generation >= 0:
            self.generations[group] = generation

    @property
    def data_dir(self) -> str:
        return next(text for text, name in self.own_texts.items() if name == DATA_DIR)

    def know_topic(self, name: str, topic_id: bytes) -> None:
        self.topic_ids[name] = topic_id
        self.topic_names[topic_id] = name

    def topic_id(self, name: str) -> bytes:
        return self.topic_ids[name]

    def body(self, case: Case) -> bytes:
        message = case.build(self)
        body = message if isinstance(message, bytes) else encode(case.api_key, case.version, message)
        return body if case.mutate is None else case.mutate(body)

    def send(self, case: Case) -> None:
        try:
            self.connection().send(case.api_key, case.version, self.body(case))
            if case.silent:
                # An answer to this one shows that the broker kept the connection.
                self.connection().send(API_VERSIONS, 0, b"")
        except OSError:
            self.drop()

    def receive(self, case: Case) -> Outcome:
        if self._connection is None:
            return Outcome(CLOSED)
        try:
            answer = self._connection.receive()
        except TimeoutError:
            self.drop()
            return Outcome(NO_ANSWER)
        if answer is None:
            self.drop()
            return Outcome(CLOSED)
        if case.silent:
            return Outcome(SILENT)
        return self._decoded(case, answer)

    def _decoded(self, case: Case, answer: bytes) -> Outcome:
        module = codec_module(case.api_key)
        position = response_body_at(case.api_key, case.version)
        version = case.version
        if case.api_key == API_VERSIONS and not module.MIN_VERSION <= version <= module.MAX_VERSION:
            version = 0
        try:
            message, end = module.decode_response(answer, position, version)
        except DecodeError as failure:
            self.drop()
            return Outcome(UNDECODABLE, str(failure))
        if end != len(answer):
            return Outcome(UNDECODABLE, f"{len(answer) - end} bytes too many")
        return Outcome(ANSWERED, message)

    def call(self, api_key: int, version: int, message: Any) -> Any:
        """A request outside the comparison, for setting up and looking around."""
        try:
            return self.connection().call(api_key, version, message)
        except ConnectionError:
            # What was compared last may have cost the connection only now.
            self.drop()
        try:
            return self.connection().call(api_key, version, message)
        except ConnectionError as failure:
            raise ConnectionError(f"{self.name}: {failure}") from failure

    def advertised(self) -> dict[int, tuple[int, int]]:
        answer = self.call(API_VERSIONS, 0, api_versions.ApiVersionsRequest())
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def look(self) -> dict[str, Any]:
        """All topics by name, as Metadata tells them; learns who the broker is on the way."""
        answer = self.call(METADATA, 12, metadata.MetadataRequest(topics=None))
        self.node_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        for topic in answer.topics:
            self.know_topic(topic.name, topic.topic_id)
        return {topic.name: topic for topic in answer.topics}


def encode(api_key: int, version: int, message: Any) -> bytes:
    if api_key == PRODUCE and version < FIRST_PRODUCE_VERSION:
        # Versions 0 to 2 are version 3 without its leading transactional id (null here).
        return bytes(codec_module(api_key).encode_request(message, FIRST_PRODUCE_VERSION)[2:])
    if api_key not in APIS or not APIS[api_key][1] <= version <= APIS[api_key][2]:
        return b""
    return bytes(codec_module(api_key).encode_request(message, version))
