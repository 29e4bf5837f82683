"""An answer that may not be there yet: less than a future, since nothing has to be scheduled for it."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.core.error_codes import ErrorCode


class PendingReply:
    """Filled once, with an answer or with a refusal; whoever subscribed is called then, or at once."""

    __slots__ = ("_answer", "_render", "_subscriber", "is_there", "refusal")

    def __init__(self, refusal: Callable[[ErrorCode], Any], render: Callable[[Any], Any]) -> None:
        """`refusal` makes the answer to a request that could not be served; `render` gives either its last form."""
        self.refusal = refusal
        self._render = render
        self._subscriber: Callable[[Any], None] | None = None
        self.is_there = False
        self._answer: Any = None

    def fill(self, answer: Any) -> None:
        if self.is_there:
            return
        self.is_there = True
        self._answer = answer
        if self._subscriber is not None:
            self._subscriber(self._render(answer))

    def refuse(self, code: ErrorCode) -> None:
        self.fill(self.refusal(code))

    def rendered(self) -> Any:
        return self._render(self._answer)

    def subscribe(self, subscriber: Callable[[Any], None]) -> None:
        if self.is_there:
            subscriber(self.rendered())
        else:
            self._subscriber = subscriber


async def arrival(later: PendingReply) -> Any:
    """The answer, for a coroutine that waits for it."""
    arrived = asyncio.get_running_loop().create_future()
    later.subscribe(lambda answer: None if arrived.done() else arrived.set_result(answer))
    return await arrived


class Gathered:
    """Several answers, each its own `PendingReply`, that make up one."""

    __slots__ = ("_answers", "_left", "_whole")

    def __init__(self, whole: PendingReply, parts: list[PendingReply]) -> None:
        self._whole = whole
        self._left = len(parts)
        self._answers: list[Any] = [None] * len(parts)
        if not parts:
            whole.fill([])
        for at, part in enumerate(parts):
            part.subscribe(lambda answer, at=at: self._arrived(at, answer))  # type: ignore[misc]

    def _arrived(self, at: int, answer: Any) -> None:
        self._answers[at] = answer
        self._left -= 1
        if not self._left:
            self._whole.fill(self._answers)
