"""Ctrl-C at a chosen moment inside the SDK, as CPython would deliver it.

CPython looks for signals when a function begins (or a generator goes on), after a call into C, and when a loop goes
round: nowhere else. So these are the moments, counted over the code of one package; the chosen one raises.
"""

import dis
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from penstock.client.consuming.consumer import Consumer
from penstock.client.message import Message

_PACKAGE = "penstock/client/"
_CALLS = {dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX") if name in dis.opmap}
_LOOKS = _CALLS | {number for name, number in dis.opmap.items() if name.startswith("JUMP_BACKWARD")}
# A handler begins: the call before has not returned but raised, and nobody looks then. Raised from here, CPython 3.11
# would not leave the handler, and no Ctrl-C could come any more.
_RAISED = dis.opmap["PUSH_EXC_INFO"]


class Interruption:
    def __init__(
        self,
        left: int,
        may_come: Callable[[], object] = lambda: True,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """`left` moments at which it may come pass before it does; `then` is told when it comes."""
        self.moment = self.left = left
        self._may_come = may_come
        self._then = then
        self.came = False
        self._last: dict[FrameType, int] = {}  # the instruction before

    @contextmanager
    def armed(self) -> Iterator[None]:
        gc.disable()  # coroutines that another test left behind would be ended, and interrupted, here
        sys.settrace(None if self.came else self._begin)
        try:
            yield
        finally:
            sys.settrace(None)
            gc.enable()
            self._last.clear()

    def _begin(self, frame: FrameType, event: str, _: object) -> Any:
        if event != "call" or _PACKAGE not in frame.f_code.co_filename:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        # A generator expression that is thrown away half done would swallow what is raised.
        if frame.f_code.co_name != "<genexpr>" and not _is_thrown_into(frame):
            self._moment()
        return self._go_on

    def _go_on(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "return":
            self._last.pop(frame, None)
            if frame.f_back is not None:  # Python returns to Python without a look
                self._last.pop(frame.f_back, None)
        elif event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = now = frame.f_code.co_code[frame.f_lasti]
            if before in _LOOKS and now != _RAISED:
                self._moment()
        return self._go_on

    def _moment(self) -> None:
        # Raised from a trace function within an except block, CPython 3.11 does not leave the block.
        if sys.exc_info()[0] is not None or not self._may_come():
            return
        self.left -= 1
        if self.left < 0 and not self.came:
            self.came = True
            sys.settrace(None)
            self._then()
            _interrupt()


class Calm:
    """No Ctrl-C."""

    def armed(self) -> AbstractContextManager[None]:
        return nullcontext()


def _is_thrown_into(frame: FrameType) -> bool:
    """A generator behind `with`, told what its block raised: it goes on in its handler, and nobody looks before."""
    back = frame.f_back
    return (
        back is not None
        and back.f_code.co_filename.endswith("contextlib.py")
        and back.f_locals.get("typ") is not None
    )


def _interrupt() -> None:
    """As CPython would: whoever handles the signal now decides whether it is raised here."""
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, None)


def handled(
    consumer: Consumer,
    message: Message,
    error: Exception | None,
    armed: Callable[[], AbstractContextManager[None]],
) -> None:
    """`handling` around a body that raised or did not, by hand: where `with` handles an exception, Ctrl-C cannot be
    raised. Nor while it begins: who goes on then says by that alone that the message is done."""
    handling = consumer.handling(message)
    handling.__enter__()
    with armed():
        caught = handling.__exit__(None if error is None else type(error), error, None)
    if error is not None and not caught:
        raise error
