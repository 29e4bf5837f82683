"""A consumer's retries, as its loop meets them: at the gate before a message, and when the body of one has ended."""

from typing import TYPE_CHECKING

from penstock.client.message import Message
from penstock.client.retry_flow import RetryFlow

if TYPE_CHECKING:
    from penstock.client.reader import Reader


class Retrying:
    def __init__(self, flow: RetryFlow, reader: "Reader") -> None:
        self._flow = flow
        self._reader = reader

    @property
    def waits(self) -> bool:
        """Whether `pass_gate` may have to wait."""
        window = self._reader.window
        return window.index < len(window.raws) and self._flow.gate_waits(window.raws[window.index])

    def pass_gate(self) -> None:
        """Up to the next message that is to be handed out."""
        window = self._reader.window
        while window.index < len(window.raws) and self._flow.gate(self._reader, window.raws[window.index]):
            window.index += 1

    def ended(self, message: Message, error: Exception | None) -> None:
        """How the body of a message ended. One that failed is passed on, which may wait."""
        if error is None:
            self._flow.succeeded(self._reader, message)
        else:
            self._flow.failed(self._reader, message, error)
