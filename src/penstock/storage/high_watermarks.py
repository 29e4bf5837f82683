"""How much of each replicated log was known to be committed when it was last written down.

A hint, and a safe one: what was committed stays so. Without it a broker that leads alone after a restart could show
readers nothing until the others are back.

Unclean elections give up what was committed, and other records take its place, under later epochs. So each mark has the
epoch of the last record below it: it says nothing of what later ones wrote.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.core.files import Files
from penstock.core.formats import check_version
from penstock.storage.epochs import EpochHistory

_FILE = "high-watermarks.json"
_VERSION = 1  # a file that names none has the marks themselves as its members
# Of marks that earlier versions wrote, which go by the offset alone.
_ANY_EPOCH = 0x7FFFFFFF


class Mark(NamedTuple):
    offset: int = 0
    epoch: int = _ANY_EPOCH

    @classmethod
    def of(cls, offset: int, epochs: EpochHistory) -> "Mark":
        epoch = epochs.epoch_at(offset - 1)
        return cls(offset, epoch if epoch >= 0 else epochs.latest)

    def committed(self, epochs: EpochHistory) -> int:
        """How much it says to be committed of the log that there is now."""
        return min([self.offset, *(start for epoch, start in epochs.entries() if epoch > self.epoch)])


class HighWatermarks:
    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / _FILE
        self._known: dict[str, Mark] | None = None

    def of(self, topic_id: bytes, partition: int) -> Mark:
        """StorageError when they cannot be read just now: without them nothing would be shown, to the next start."""
        if self._known is None:
            self._known = self._load()
        return self._known.get(_key(topic_id, partition), Mark())

    def _load(self) -> dict[str, Mark]:
        try:
            fields = json.loads(self._files.read(self._path))
            check_version(self._path, int(fields.get("version", 0)), _VERSION)
            marks = fields["marks"] if "version" in fields else fields
            return {str(name): _parsed(mark) for name, mark in marks.items()}
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def save(self, marks: Mapping[tuple[bytes, int], Mark]) -> None:
        """Blocks. NewerFormatError: what is there is not to be written over."""
        if self._known is None:
            self._known = self._load()
        fields = {"version": _VERSION, "marks": {_key(*place): mark for place, mark in marks.items()}}
        self._files.write_atomically(self._path, json.dumps(fields).encode() + b"\n")


def _parsed(mark: object) -> Mark:
    if isinstance(mark, list):
        offset, epoch = mark
        return Mark(int(offset), int(epoch))
    return Mark(int(str(mark)))


def _key(topic_id: bytes, partition: int) -> str:
    return f"{topic_id.hex()}-{partition}"
