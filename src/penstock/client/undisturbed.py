"""Calls that no signal may break off: what it has to say is heard when the call is over.

An exception in a callback of librdkafka's, also one that a signal's handler raises there, takes what the callback was
told with it: the binding calls once, and mostly loses the exception as well (confluent-kafka-python issue 1708). Python
runs handlers wherever the main thread is, and a function can do nothing against it before it has begun.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

Handler = Callable[[int, FrameType | None], object]

# Those whose handlers raise, mostly: Ctrl-C, an end that was asked for, an alarm that went off.
_SIGNALS = [int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name)]
# Without the enums around them, which cost more than the calls.
_get: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_set: Callable[[int, Any], Any] = getattr(signal.signal, "__wrapped__", signal.signal)


class Undisturbed:
    """`with Undisturbed():` around a short call."""

    __slots__ = ("_before", "_came", "_holding")

    def __enter__(self) -> Self:
        self._holding = True
        self._came: list[tuple[int, FrameType | None]] = []
        self._before: dict[int, Handler] = {}
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _SIGNALS:
                handler = _get(number)
                if callable(handler):
                    self._before[number] = handler
                    _set(number, self._note)
        except BaseException:
            self._holding = False
            raise
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        # One that stayed behind, because another signal's handler raised in between, must not swallow any.
        if self._holding:
            self._came.append((number, frame))
        else:
            self._before[number](number, frame)

    def __exit__(self, *_: object) -> None:
        try:
            # Ctrl-C waits until the others are put back.
            for number, handler in reversed(self._before.items()):
                found = _set(number, handler)
                if found != self._note:  # somebody has set another one meanwhile
                    _set(number, found)
        finally:
            self._holding = False
            if self._came:
                self._tell()

    def _tell(self) -> None:
        """Called, not raised anew: an event loop has been woken by the signals themselves. A handler that raises, as
        Ctrl-C's does, keeps none of the others from being heard."""
        try:
            while self._came:
                number, frame = self._came.pop(0)
                handler = _get(number)
                if callable(handler):
                    handler(number, frame)
        finally:
            if self._came:
                self._tell()
