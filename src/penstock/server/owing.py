"""What a connection asks of the server around it, and the answer it owes to a request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from penstock.core.descriptors import Descriptors
from penstock.core.session import Session
from penstock.core.stats import RequestStats
from penstock.server.idle_poll import IdlePoll
from penstock.server.receiving import ReceiveBudget
from penstock.server.sending import SendBudget
from penstock.server.writer import Part, Writer

if TYPE_CHECKING:
    from penstock.server.kafka_connection import KafkaConnection
    from penstock.server.stream import Stream


class Dispatcher(Protocol):
    """Turns a frame into a response, now (parts) or later (None, after `connection.defer` or `run`)."""

    def dispatch(self, connection: "KafkaConnection", frame: memoryview) -> list[Part] | None: ...

    def admit(self, api_key: int, size_bytes: int) -> None:
        """Of a large request, before all of it is received: ProtocolError where it would be refused for its size."""
        ...

    def write_held(self) -> None:
        """Finish what requests left to be done together, before their answers leave; ApiError if it failed."""
        ...


class Host(Protocol):
    """What a connection needs of the server it belongs to."""

    request_bytes_max: int
    bytes_in: int
    bytes_out: int
    held_bytes: int  # of requests that wait, and of answers that wait for them, on all connections
    requests: RequestStats
    idle_poll: IdlePoll
    receive_budget: ReceiveBudget
    send_budget: SendBudget
    descriptors: Descriptors  # that answers share with segments

    def opened(self, connection: "Stream") -> bool: ...
    def closed(self, connection: "Stream") -> None: ...
    def run(self, work: Coroutine[object, object, None]) -> None: ...
    def queue(self, connection: "Stream") -> None:
        """It has requests left, and takes its turn when others had theirs."""


class Listening(Protocol):
    """The listener that a connection came in by."""

    name: str

    def writer(self, transport: asyncio.Transport, drained: Callable[[], None]) -> Writer:
        """What sends over a new connection; `drained` is called when all has gone that had to wait."""
        ...


class Reply:
    """A response that is owed."""

    __slots__ = (
        "_api_key",
        "_began",
        "_connection",
        "abandoned",
        "held_bytes",
        "kept_bytes",
        "parts",
        "slices",
    )

    def __init__(self, connection: "KafkaConnection", api_key: int, began: float) -> None:
        self._connection = connection
        self._api_key = api_key
        self._began = began
        self.abandoned: Callable[[], None] | None = None  # to be called when the client is gone
        self.held_bytes = 0  # of the request while it waits, of the answer while others are waited for
        self.kept_bytes = self.slices = 0  # of that answer, in memory and in files
        self.parts: list[Part] | None = None

    @property
    def session(self) -> Session:
        return self._connection.session

    def send(self, parts: list[Part]) -> None:
        self.parts = parts
        self._connection.reply_ready(self, self._api_key, self._began)

    def abandon(self) -> None:
        """The client is gone. Who was to answer knows us: as a cycle, neither would go without a collection."""
        abandoned, self.abandoned = self.abandoned, None
        if abandoned is not None:
            abandoned()


Outcome = list[Part] | Callable[[Reply], None] | None
