"""What a connection asks of the server around it, and the answer it owes to a request."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from penstock.core.stats import RequestStats
from penstock.server.awake import Awake
from penstock.server.receiving import ReceiveBudget
from penstock.server.writer import Part

if TYPE_CHECKING:
    from penstock.server.connection import Connection


class Dispatcher(Protocol):
    """Turns a frame into a response, now (parts) or later (None, after `connection.defer` or `run`)."""

    def dispatch(self, connection: "Connection", frame: memoryview) -> list[Part] | None: ...

    def admit(self, api_key: int, size_bytes: int) -> None:
        """Of a large request, before all of it is received: ProtocolError where it would be refused for its size."""
        ...

    def settle(self) -> None:
        """Finish what requests left to be done together, before their answers leave; ApiError if it failed."""
        ...


class Host(Protocol):
    """What a connection needs of the server it belongs to."""

    request_bytes_max: int
    socket_buffers: tuple[int, int]  # receive and send, in bytes; negative: the system's
    bytes_in: int
    bytes_out: int
    requests: RequestStats
    awake: Awake
    receive_budget: ReceiveBudget

    def opened(self, connection: "Connection") -> bool: ...
    def closed(self, connection: "Connection") -> None: ...
    def run(self, work: Coroutine[object, object, None]) -> None: ...
    def queue(self, connection: "Connection") -> None:
        """It has requests left, and takes its turn when others had theirs."""


class Reply:
    """A response that is owed."""

    __slots__ = ("_api_key", "_began", "_connection", "abandoned", "held_bytes", "parts")

    def __init__(self, connection: "Connection", api_key: int, began: float) -> None:
        self._connection = connection
        self._api_key = api_key
        self._began = began
        self.abandoned: Callable[[], None] | None = None  # to be called when the client is gone
        self.held_bytes = 0  # of the request, while it waits
        self.parts: list[Part] | None = None

    def send(self, parts: list[Part]) -> None:
        self.parts = parts
        self._connection.reply_ready(self._api_key, self._began)


Outcome = list[Part] | Callable[[Reply], None] | None
