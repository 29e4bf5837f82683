"""A disk in memory that knows what is durable: the state behind `MemFiles`.

Bytes: an inode has its current bytes, the bytes that are safe on the platter, and the list of changes
between the two. `sync` applies the changes to the safe bytes. A sync that fails forgets them instead:
the kernel marks such pages clean, so a later sync succeeds without them and only a power cut shows it
(ext4), or whoever reads next, where the pages are dropped at once (XFS, btrfs).

Names: directories have current entries and safe entries. What lies between is a journal of operations,
each of which sets or removes one or two names at once; `sync_dir` makes the operations durable that
touch the directory, with the earlier ones they build on.

A power cut (`Disk.power_cut`) picks, per file and by the seed, one of the things real disks do:
nothing un-synced survives, a prefix of it does, the last write is torn, or pages survive in any order.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = 4096
COLD_CHUNK_BYTES = 64 * 1024  # of the page cache: so much is in memory, or is not


class Change(NamedTuple):
    """Bytes written at an offset; or, without bytes, the file cut or extended to that size."""

    offset: int
    data: bytes | None


def apply_change(content: bytearray, change: Change) -> None:
    if change.data is None:
        if change.offset <= len(content):
            del content[change.offset :]
        else:
            content.extend(bytes(change.offset - len(content)))
        return
    if change.data and change.offset > len(content):
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


class Inode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.safe = bytearray()
        self.unsynced: list[Change] = []
        self.cold: dict[int, bool] = {}
        # Syncs and write-backs that failed: each is told once to whoever had the file open then.
        self.errors = 0

    def change(self, change: Change) -> None:
        apply_change(self.content, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            apply_change(self.safe, change)
        self.unsynced.clear()

    def fail_sync(self, drops: random.Random | None = None) -> None:
        """The pages count as clean; or, by `drops`, what is read from now on is what reached the disk."""
        self.errors += 1
        if drops is None:
            self.unsynced.clear()
        else:
            self.power_cut(drops)

    def evict(self) -> None:
        """Pages that count as clean are dropped: who reads gets what reached the disk, whatever was written."""
        size = len(self.content)
        self.content = bytearray(self.safe)
        for change in self.unsynced:
            apply_change(self.content, change)
        apply_change(self.content, Change(size, None))
        self.cold.clear()

    def power_cut(self, rng: random.Random) -> None:
        survived = bytearray(self.safe)
        fate = rng.random()
        if not self.unsynced or fate < 0.3:
            pass
        elif fate < 0.8:
            self._keep_prefix(survived, rng)
        elif fate < 0.9:
            for change in self.unsynced:
                apply_change(survived, change)
        else:
            survived = self._keep_pages(rng)
        self.content = survived
        self.safe = bytearray(survived)
        self.unsynced = []
        self.cold = {}

    def _keep_prefix(self, survived: bytearray, rng: random.Random) -> None:
        kept = rng.randint(0, len(self.unsynced))
        for change in self.unsynced[:kept]:
            apply_change(survived, change)
        if kept < len(self.unsynced) and rng.random() < 0.5:
            torn = self.unsynced[kept]
            if torn.data:
                apply_change(survived, Change(torn.offset, torn.data[: rng.randrange(len(torn.data))]))

    def _keep_pages(self, rng: random.Random) -> bytearray:
        """The new size with some of the new pages; the lost ones show old bytes, or zeros."""
        survived = bytearray(self.safe)
        for change in self.unsynced:
            start, data = change.offset, change.data or b""
            # The size changes as ordered; a page that is lost reads as zeros, or as what it was.
            if change.data is None or start + len(data) > len(survived):
                apply_change(survived, Change(start + len(data), None))
            for low, high in page_ranges(start, start + len(data)):
                if rng.random() < 0.5:
                    survived[low:high] = data[low - start : high - start]
        return survived


def page_ranges(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The range cut at page borders."""
    while start < end:
        border = min(end, (start // PAGE_BYTES + 1) * PAGE_BYTES)
        yield start, border
        start = border


class Directory:
    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.safe: dict[str, Node] = {}


Node = Inode | Directory


class NameChange(NamedTuple):
    """One name of one directory set to a node, or removed."""

    directory: Directory
    name: str
    node: Node | None


# Applied as a whole or not at all: a rename has two.
Operation = tuple[NameChange, ...]


def _set_name(entries: dict[str, Node], change: NameChange) -> None:
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


class Disk:
    def __init__(self) -> None:
        self.root = Directory()
        self._journal: list[Operation] = []

    def find(self, path: Path) -> Node | None:
        node: Node = self.root
        for part in path.parts:
            if part == path.anchor:
                continue
            if not isinstance(node, Directory) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def change_names(self, *changes: NameChange) -> None:
        for change in changes:
            _set_name(change.directory.entries, change)
        self._journal.append(changes)

    def sync_directory(self, directory: Directory) -> None:
        wanted = {id(directory)}
        kept: list[Operation] = []
        synced: list[Operation] = []
        # Backwards: an operation that is made durable takes along the earlier ones in its directories.
        for operation in reversed(self._journal):
            if any(id(change.directory) in wanted for change in operation):
                wanted.update(id(change.directory) for change in operation)
                synced.append(operation)
            else:
                kept.append(operation)
        for operation in reversed(synced):
            for change in operation:
                _set_name(change.directory.safe, change)
        self._journal = kept[::-1]

    def sync_all(self) -> None:
        for operation in self._journal:
            for change in operation:
                _set_name(change.directory.safe, change)
        self._journal = []
        for inode in self.inodes():
            inode.sync()

    def fail_write_back(self, drops: random.Random | None) -> None:
        for inode in self.inodes():
            if inode.unsynced:
                inode.fail_sync(drops)

    def inodes(self, top: Directory | None = None) -> list[Inode]:
        """Files that have a name, each once, in the order of the tree; all, or those below a directory."""
        found: dict[Inode, None] = {}
        for directory in self._directories(top or self.root):
            for node in directory.entries.values():
                if isinstance(node, Inode):
                    found[node] = None
        return list(found)

    def _directories(self, top: Directory) -> Iterator[Directory]:
        todo = [top]
        while todo:
            directory = todo.pop()
            yield directory
            todo.extend(node for node in directory.entries.values() if isinstance(node, Directory))

    def used_bytes(self) -> int:
        return sum(len(inode.content) for inode in self.inodes())

    def power_cut(self, rng: random.Random) -> None:
        for operation in self._surviving_operations(rng):
            for change in operation:
                _set_name(change.directory.safe, change)
        self._journal = []
        todo = [self.root]
        while todo:
            directory = todo.pop()
            directory.entries = dict(directory.safe)
            todo.extend(node for node in directory.entries.values() if isinstance(node, Directory))
        for inode in self.inodes():
            inode.power_cut(rng)

    def _surviving_operations(self, rng: random.Random) -> list[Operation]:
        if rng.random() < 0.7:  # a journal keeps a prefix
            return self._journal[: rng.randint(0, len(self._journal))]
        needed: set[tuple[int, str]] = set()
        survivors: list[Operation] = []
        # Without one, each may survive or not, with what it builds on.
        for operation in reversed(self._journal):
            names = {(id(change.directory), change.name) for change in operation}
            if rng.random() < 0.5 or names & needed:
                needed |= names
                survivors.append(operation)
        return survivors[::-1]
