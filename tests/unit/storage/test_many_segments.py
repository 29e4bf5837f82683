"""Thousands of segments that leave a log are not compared with each other, on the loop."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.core.files import Files
from penstock.storage.deletion import Deletion
from penstock.storage.log import Log
from penstock.storage.unsynced import Unsynced

MANY = 300


class Leaving:
    """A segment that counts how often it is compared."""

    compared = 0

    def rename_deleted(self) -> None: ...

    def __eq__(self, other: object) -> bool:
        Leaving.compared += 1
        return self is other

    __hash__ = object.__hash__


def leaving() -> list[Any]:
    Leaving.compared = 0
    return [Leaving() for _ in range(MANY)]


def test_what_a_deletion_hid() -> None:
    segments = leaving()
    deletion = Deletion(cast(Files, SimpleNamespace(sync_dir=lambda directory: None)), Path(), segments[:-1])
    assert deletion.hide()
    log = SimpleNamespace(_leaving=segments)
    Log.hidden(cast(Log, log), deletion)
    assert log._leaving == segments[-1:]
    assert Leaving.compared <= MANY


def test_what_needs_no_sync_any_more() -> None:
    segments = leaving()
    unsynced = Unsynced(cast(Any, SimpleNamespace(unpin=lambda segment: None)))
    unsynced._segments = list(segments)
    unsynced.leave_out(segments[:-1])
    assert unsynced.last is segments[-1]
    assert Leaving.compared <= MANY
