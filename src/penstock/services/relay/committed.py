"""Waiting for a commit."""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


class Committed:
    """An `AckWaiter` that somebody awaits."""

    __slots__ = ("done",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done = loop.create_future()

    def committed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, code: ErrorCode, message: str) -> None:
        if not self.done.done():
            self.done.set_exception(ApiError(code, message))
