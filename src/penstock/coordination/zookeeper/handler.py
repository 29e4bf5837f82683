"""kazoo's threads, with less patience: a server that accepts a connection and says nothing is left for another try.

kazoo waits for the first answer as long as a session lasts. A server that came to be asked while it started may never
give it, nor may one behind a network that swallows packets: the session would end, though the server is well by then.
"""

from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

SILENCE_S_MAX = 10.0


class ImpatientHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._patience_s = min(SILENCE_S_MAX, session_timeout_s / 3)

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._patience_s), **options)

    def select(self, reads: Any, writes: Any, errors: Any, timeout: float | None = None) -> Any:
        # With two to read from it waits for news, and is right to; with a single socket for bytes that are due.
        if timeout is not None and len(reads) + len(writes) == 1:
            timeout = min(timeout, self._patience_s)
        return super().select(reads, writes, errors, timeout)
