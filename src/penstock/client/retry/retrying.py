"""A consumer's retries, as its loop meets them at the gate before a message; for the ends of bodies see `bodies`."""

from typing import TYPE_CHECKING

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
