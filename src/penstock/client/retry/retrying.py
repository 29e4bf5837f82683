"""A consumer's retries, as its loop meets them: at the gate before a message, and when the body of one has ended."""

from typing import TYPE_CHECKING

from penstock.client.message import Message
from penstock.client.retry.flow import RetryFlow

if TYPE_CHECKING:
    from penstock.client.consuming.reader import Reader


class Retrying:
    def __init__(self, flow: RetryFlow, reader: "Reader") -> None:
        self._flow = flow
        self._reader = reader

    @property
    def waits(self) -> bool:
        """Whether `pass_gate` may have to wait."""
        unfinished = self._reader.unfinished
        return unfinished.index < len(unfinished.raws) and self._flow.gate_waits(
            unfinished.raws[unfinished.index]
        )

    def pass_gate(self) -> None:
        """Up to the next message that is to be handed out."""
        unfinished = self._reader.unfinished
        while unfinished.index < len(unfinished.raws) and self._flow.gate(
            self._reader, unfinished.raws[unfinished.index]
        ):
            unfinished.index += 1

    def ended(self, message: Message, error: Exception | None) -> None:
        """How the body of a message ended. One that failed is passed on, which may wait."""
        if error is None:
            self._flow.succeeded(self._reader, message)
        else:
            self._flow.failed(self._reader, message, error)
