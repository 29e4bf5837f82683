"""`pipeline sql` to a screen that nobody looks at any more (`| head`)."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.pipeline.sql import _Printer


def test_a_batch_that_nobody_saw_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would write it to the checkpoint, and the next run would go on behind it."""

    def closed(_: str) -> None:
        raise BrokenPipeError

    user: Any = SimpleNamespace(stop=threading.Event())
    printer = _Printer(user)
    monkeypatch.setattr(sys.stdout, "write", closed)
    for _ in range(2):  # nor are those that come before the query has stopped
        with pytest.raises(BrokenPipeError):
            printer.line("{}")
    assert printer.broken
    assert user.stop.is_set()
