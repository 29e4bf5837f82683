"""Ending a loop from outside: a signal, or `stop()` from another thread."""

import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from types import FrameType

_listening: "weakref.WeakSet[Stop]" = weakref.WeakSet()


class Stop:
    """Set once. Signals are only listened to in the main thread, the one that Python tells about them."""

    def __init__(self, signals: Sequence[signal.Signals], then: Callable[[], None] | None = None) -> None:
        """`then` is told, too; it runs between any two lines of the main thread, so it should only note something."""
        self.signals = tuple(signals)
        self._then = then
        self.wanted = False

    def request(self) -> None:
        self.wanted = True
        if self._then is not None:
            self._then()

    def listen(self) -> None:
        if threading.current_thread() is not threading.main_thread() or not self.signals:
            return
        _listening.add(self)
        for number in self.signals:
            # A handler of the application's own knows better what to do.
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _received)

    def restore(self) -> None:
        """When nobody listens any more, a signal does again what it did."""
        _listening.discard(self)
        if threading.current_thread() is not threading.main_thread():
            return
        needed = {number for other in _listening for number in other.signals}
        for number in self.signals:
            if number not in needed and signal.getsignal(number) == _received:
                signal.signal(number, signal.SIG_DFL)


def _received(number: int, _: FrameType | None) -> None:
    for stop in list(_listening):
        if number in stop.signals:
            stop.request()
