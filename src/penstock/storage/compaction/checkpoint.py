"""How far compaction has come in one log: a small file beside its segments, so that it goes where they go.

A log that is made anew begins without it, and one that is cut has it lowered before anything goes. *Kept by the
partition's number, as Apache Kafka does, it would tell of a log that is no more: in its successor the tombstones below
would take no value with them, and go.*
"""

from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.core.crc32c import crc32c
from penstock.core.files import Files
from penstock.core.formats import check_version
from penstock.storage.layout import CLEANER_FILE

_FILE_VERSION = 1
# A tombstone may be missing anywhere, also behind the end: a copy on its way lacks those that its leader lacked.
ANYWHERE = (1 << 63) - 1


class Cleaned(NamedTuple):
    # Everything below it is clean. It may be behind, for cleaning what is clean changes nothing, and is never ahead.
    offset: int = 0
    # Below it tombstones, and markers of transactions, may be missing that once were there: a copy that ends before it
    # may have missed them, and keep what they deleted, or take what they aborted for open. It may be ahead, and is
    # never behind.
    tombstones: int = 0
    # Records below it may have taken earlier ones with them, in a round that was perhaps never finished: whoever has to
    # give them up lacks what they took. It may be ahead, and is never behind.
    went_by: int = 0

    def cut(self, end_offset: int) -> "Cleaned":
        """What is left of it in a log that ends there."""
        return self._replace(
            offset=min(self.offset, end_offset), went_by=min(max(self.went_by, self.offset), end_offset)
        )

    def going_by(self, end_offset: int) -> "Cleaned":
        return self._replace(went_by=max(self.went_by, self.offset, end_offset))

    def lacks(self, end_offset: int) -> bool:
        """Whether a log that is cut there may lack values for the sake of what was cut."""
        return end_offset < max(self.went_by, self.offset)

    def in_doubt(self, other: "Cleaned") -> "Cleaned":
        """What holds whichever of the two stands on the disk."""
        return Cleaned(
            min(self.offset, other.offset),
            max(self.tombstones, other.tombstones),
            max(self.went_by, self.offset, other.went_by, other.offset),
        )

    def leading(self, end_offset: int) -> "Cleaned":
        """In a log that ends there and is to lead: it gets from nobody what lacks any."""
        return self._replace(tombstones=end_offset) if self.tombstones == ANYWHERE else self

    def without_tombstones(self, end_offset: int) -> "Cleaned":
        return self._replace(tombstones=max(self.tombstones, end_offset))


def save_cleaned(files: Files, directory: Path, cleaned: Cleaned) -> None:
    text = b"%d\n%s\n" % (_FILE_VERSION, b" ".join(b"%d" % value for value in cleaned))
    files.write_atomically(directory / CLEANER_FILE, text + b"crc32c %08x\n" % crc32c(text))


class Noting(Protocol):
    """A log, as far as its mark goes."""

    cleaned: Cleaned
    cleaned_in_doubt: bool

    @property
    def files(self) -> Files: ...
    @property
    def directory(self) -> Path: ...


class CleanedNote:
    """A job for a thread that writes the mark down, before anything goes by it; call `done` behind it, on the loop.

    Where it fails, or nobody waits for it any more, the file may say so or not: then the log goes by what holds for
    both, and writes again before it goes by more.
    """

    __slots__ = ("_known", "_log")

    def __init__(self, log: Noting, known: Cleaned) -> None:
        self._log, self._known = log, known
        log.cleaned, log.cleaned_in_doubt = log.cleaned.in_doubt(known), True

    def run(self) -> None:
        save_cleaned(self._log.files, self._log.directory, self._known)

    def done(self) -> None:
        # Not the rest: whoever leads from now on may know better meanwhile.
        self._log.cleaned = self._log.cleaned._replace(offset=self._known.offset)
        self._log.cleaned_in_doubt = False


def load_cleaned(files: Files, directory: Path, end_offset: int) -> Cleaned:
    """Of a log that ends there. DiskError when it cannot be read just now: that is no damage."""
    try:
        return parse_cleaned(files.read(directory / CLEANER_FILE), end_offset)
    except FileNotFoundError:
        return Cleaned()


def parse_cleaned(data: bytes, end_offset: int) -> Cleaned:
    """One that is damaged tells nothing: all may be dirty, any tombstone missing."""
    try:
        text, _, checksum = data.rpartition(b"crc32c ")
        if int(checksum, 16) == crc32c(text):
            version, *values = text.split()
            check_version("the cleaner's checkpoint", int(version), _FILE_VERSION)
            known = Cleaned(*map(int, values))
            return known if len(values) == len(known) else known.going_by(end_offset)  # an earlier version's
    except (ValueError, TypeError):
        pass
    return Cleaned(tombstones=ANYWHERE, went_by=end_offset)
