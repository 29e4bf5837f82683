"""What goes on beside a test, in a thread, for as long as a `with` block lasts."""

import threading
from typing import Self


class Working:
    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        """Until `_stopped`."""
        raise NotImplementedError
