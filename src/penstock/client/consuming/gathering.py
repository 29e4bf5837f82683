"""When a batch of messages is full enough to be handed out."""

import time

from penstock.client.consuming.reader import WAIT_SECONDS


class Gathering:
    """How long a batch may go on filling up: `wait` seconds since its first message was there."""

    def __init__(self, size: int, wait: float) -> None:
        self._size = size
        self._wait = wait
        self._deadline: float | None = None

    def wait_left(self, taken: int) -> float | None:
        """How long to wait for more now; None when the batch is full or its time is over."""
        if not taken:
            return WAIT_SECONDS
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._wait
        if taken >= self._size or now >= self._deadline:
            return None
        return min(WAIT_SECONDS, self._deadline - now)
