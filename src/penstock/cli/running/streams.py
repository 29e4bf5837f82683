"""Standard streams that are closed, full, or that nobody reads: they must not matter to a broker.

Where one is closed, the next file or socket gets its number: the event loop aborts when it finds itself on such a one,
and what is printed would go into it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def open_closed_streams() -> None:
    """First thing of all, while the numbers are still free."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            _nothing_at(number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


@contextmanager
def harmless_output() -> Iterator[None]:
    """What is printed inside, and cannot be, is left out, and so is what is printed later."""
    try:
        yield
    except (OSError, ValueError):
        with suppress(OSError):
            _nothing_at(1)  # or the rest, which is in Python's buffer, would fail the process when it ends


def _nothing_at(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
