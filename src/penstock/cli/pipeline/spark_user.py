"""Spark under a command: its start without the chatter, its end when the user says so."""

import logging
import os
import signal
import sys
import threading
from types import FrameType
from typing import Self

# PySpark writes every failed analysis there, with its Java stack, besides raising it.
_CHATTY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class SparkUser:
    """Around a command's use of Spark; `started` is called once Spark runs.

    The JVM inherits the stderr it was started with, and has a dozen lines to say about itself: it gets none to write
    to, unless somebody debugs. From its start on, Ctrl-C and SIGTERM ask the pipeline to stop after what it is at
    (`stop` is set); a second one ends it at once.
    """

    def __init__(self, *, debug: bool, after: str = "this round") -> None:
        self.stop = threading.Event()
        self._debug = debug
        self._after = after
        self._stderr: int | None = None
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def __enter__(self) -> Self:
        if not self._debug:
            sys.stderr.flush()
            self._stderr = os.dup(2)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)
            os.close(nothing)
        return self

    def __exit__(self, *_: object) -> None:
        self._speak()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def started(self) -> None:
        self._speak()
        if not self._debug:
            for name in _CHATTY_LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        # Not before: Spark takes Ctrl-C for itself when it starts, and until then there is nothing to finish.
        for number in self._before:
            signal.signal(number, self._ask)

    def _speak(self) -> None:
        if self._stderr is not None:
            sys.stderr.flush()
            os.dup2(self._stderr, 2)
            os.close(self._stderr)
            self._stderr = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.stop.set()
        print(f"stopping after {self._after}; once more to stop at once", file=sys.stderr, flush=True)
