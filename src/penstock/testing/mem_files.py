"""`core.files.Files` in memory, for the simulation: it can lose, tear, fill up, fail and be cold on command.

    files = MemFiles(seed=7)
    ...
    files = files.crash(rng)    # a power cut: un-synced bytes and names may be gone
    files = files.kill()        # the process died: everything written is still there

Both give the files as the next process finds them. The old object and every handle and lock from it are
dead: a crashed process must not write. What MemFiles does not do is take time; sync and cold reads belong
in executor jobs, whose time the simulated loop decides (`SimLoop.slow_down`).
"""

import fnmatch
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.descriptors import Descriptors, Shares
from penstock.core.errors import DiskFailedError, TooManyFilesError
from penstock.core.files import LockedError
from penstock.testing.mem_disk import COLD_CHUNK_BYTES, Directory, Disk, Inode, NameChange, Node
from penstock.testing.mem_file import MemFile, MemLock, StaleFileError
from penstock.testing.sim_steps import may_stop_here

UNLIMITED_BYTES = 1 << 40
UNLIMITED_FILES = 1 << 20

_CONTENT = ("open", "read", "write", "sync", "truncate")
_NAMES = ("rename", "unlink", "list", "make_dirs", "sync_dir")
OPERATIONS = (*_CONTENT, *_NAMES)


@dataclass
class _Fault:
    operation: str
    pattern: str
    count: int


class MemFiles:
    def __init__(self, seed: int = 0, *, cold_chance: float = 0.0, disk: Disk | None = None) -> None:
        self._disk = disk if disk is not None else Disk()
        self._rng = random.Random(f"{seed}/files")
        self._alive = True
        self._locked: dict[Inode, None] = {}
        self._faults: list[_Fault] = []
        self._capacity_bytes: int | None = None
        self.cold_chance = cold_chance
        self.drops_pages = False  # whether a sync that fails takes along what it did not write
        self.descriptors = Descriptors(Shares(UNLIMITED_FILES, UNLIMITED_FILES))
        self.inodes_left = UNLIMITED_FILES  # as told, not as used
        self.open_max = UNLIMITED_FILES  # what the process may have open, whoever opens it
        self.short_in = 0  # the operation of that number that needs a descriptor, from here on, finds none

    # -- what can happen to the machine -------------------------------------------------------------

    def kill(self) -> "MemFiles":
        """The process died. What it wrote is in the page cache, synced or not."""
        self._alive = False
        successor = MemFiles(cold_chance=self.cold_chance, disk=self._disk)
        successor._rng, successor._faults = self._rng, self._faults
        successor._capacity_bytes, successor.drops_pages = self._capacity_bytes, self.drops_pages
        successor.limit_files(self.descriptors.files_max, self.open_max)
        return successor

    def crash(self, rng: random.Random) -> "MemFiles":
        """The power went. Only what was synced is sure to be there."""
        self._disk.power_cut(rng)
        return self.kill()

    def fill_up(self, bytes_left: int) -> None:
        """From now on the files may grow by this much in total; deleting makes room."""
        self._capacity_bytes = self._disk.used_bytes() + bytes_left

    def make_room(self) -> None:
        self._capacity_bytes = None

    def limit_files(self, files_max: int, open_max: int = UNLIMITED_FILES) -> None:
        """As many may segments have open, and all together."""
        self.descriptors.files_max, self.open_max = files_max, open_max

    def fail_next(self, operation: str, pattern: str = "*", *, count: int = 1) -> None:
        """The next `count` such operations on paths like the pattern raise `DiskFailedError`."""
        if operation not in OPERATIONS:
            raise ValueError(f"{operation} is none of {', '.join(OPERATIONS)}")
        self._faults.append(_Fault(operation, pattern, count))

    def fail_write_back(self) -> None:
        """The kernel writes what was not synced, by itself, and fails: only the next sync of a file tells."""
        self._disk.fail_write_back(self.drops)

    def mend(self) -> None:
        """Forget the faults that have not struck. Until then they stay, over crashes too: disks do not heal."""
        self._faults.clear()

    def chill(self) -> None:
        """Empty the page cache: what a failed sync left there is gone; with a `cold_chance`, all may be cold."""
        for inode in self._disk.inodes():
            inode.evict()

    # -- for files and locks ------------------------------------------------------------------------

    def enter(self, operation: str, path: Path) -> None:
        may_stop_here()
        if not self._alive:
            raise StaleFileError(f"{path}: {operation} after the crash of its process")
        for fault in self._faults:
            if fault.operation == operation and fnmatch.fnmatch(str(path), fault.pattern):
                fault.count -= 1
                if not fault.count:
                    self._faults.remove(fault)
                raise DiskFailedError(f"{path}: Input/output error")

    @property
    def drops(self) -> random.Random | None:
        return self._rng if self.drops_pages else None

    def bytes_that_fit(self, inode: Inode, size: int, offset: int) -> int:
        if self._capacity_bytes is None:
            return size
        growth = max(0, offset + size - len(inode.content))
        free = max(0, self._capacity_bytes - self._disk.used_bytes())
        return size if growth <= free else max(0, size - (growth - free))

    def is_cold(self, inode: Inode, size: int, offset: int) -> bool:
        if not self.cold_chance:
            return False
        chunks = range(offset // COLD_CHUNK_BYTES, (offset + max(size, 1) - 1) // COLD_CHUNK_BYTES + 1)
        for chunk in chunks:
            if chunk not in inode.cold:
                inode.cold[chunk] = self._rng.random() < self.cold_chance
        return any(inode.cold[chunk] for chunk in chunks)

    def warm(self, inode: Inode, size: int, offset: int) -> None:
        for chunk in range(offset // COLD_CHUNK_BYTES, (offset + max(size, 1) - 1) // COLD_CHUNK_BYTES + 1):
            inode.cold[chunk] = False

    def unlock(self, inode: Inode) -> None:
        self._locked.pop(inode, None)

    # -- Files --------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> MemFile:
        self.enter("open", path)
        self._take_descriptor(path)
        return MemFile(self, path, self._open_inode(path, create=create))

    def _take_descriptor(self, path: Path) -> None:
        self.short_in -= 1
        if len(self.descriptors.live) >= self.open_max:
            self.descriptors.close_some()
        if not self.short_in or len(self.descriptors.live) >= self.open_max:
            raise TooManyFilesError(f"{path}: Too many open files")

    def read(self, path: Path) -> bytes:
        self.enter("read", path)
        self._take_descriptor(path)
        return bytes(self._open_inode(path).content)

    def write_atomically(self, path: Path, data: bytes) -> None:
        draft = self.open(path.with_name(path.name + ".tmp"), create=True)
        draft.truncate(0)
        draft.pwrite(data, 0)
        draft.sync()
        draft.close()
        self.rename(draft.path, path)
        self.sync_dir(path.parent)

    def exists(self, path: Path) -> bool:
        self.enter("exists", path)
        return self._disk.find(path) is not None

    def size(self, path: Path) -> int:
        self.enter("size", path)
        return len(self._open_inode(path).content)

    def list_dir(self, path: Path) -> list[str]:
        self.enter("list", path)
        self._take_descriptor(path)
        node = self._disk.find(path)
        if node is None:
            return []
        if isinstance(node, Inode):
            raise DiskFailedError(f"{path}: Not a directory")
        return sorted(node.entries)

    def make_dirs(self, path: Path) -> None:
        """All names first, then their syncs: whoever is killed in between leaves directories that may go again."""
        self.enter("make_dirs", path)
        made = []
        for directory in (*reversed(path.parents), path):
            node = self._disk.find(directory)
            if isinstance(node, Inode):
                raise DiskFailedError(f"{directory}: Not a directory")
            if node is None:
                self._disk.change_names(NameChange(self._parent(directory), directory.name, Directory()))
                made.append(directory)
        for directory in reversed(made):
            self.sync_dir(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        self.enter("rename", source)
        node = self._disk.find(source)
        if node is None:
            raise FileNotFoundError(str(source))
        parent = self._parent(target)
        present = parent.entries.get(target.name)
        if present is node:
            return
        if present is not None:
            self._check_replaceable(target, present, node)
        self._disk.change_names(
            NameChange(parent, target.name, node), NameChange(self._parent(source), source.name, None)
        )

    @staticmethod
    def _check_replaceable(target: Path, present: Node, node: Node) -> None:
        if isinstance(present, Directory) != isinstance(node, Directory):
            raise DiskFailedError(f"{target}: a directory cannot replace a file, nor a file a directory")
        if isinstance(present, Directory) and present.entries:
            raise DiskFailedError(f"{target}: Directory not empty")

    def unlink(self, path: Path) -> None:
        self.enter("unlink", path)
        node = self._disk.find(path)
        if node is None:
            return
        if isinstance(node, Directory):
            raise DiskFailedError(f"{path}: Is a directory")
        self._disk.change_names(NameChange(self._parent(path), path.name, None))

    def remove_tree(self, path: Path) -> None:
        self.enter("unlink", path)
        node = self._disk.find(path)
        if not isinstance(node, Directory):
            return
        with suppress(FileNotFoundError):  # another one may be removing it, too
            for name in sorted(node.entries):
                if isinstance(node.entries.get(name), Directory):
                    self.remove_tree(path / name)
                else:
                    self.unlink(path / name)
            self._disk.change_names(NameChange(self._parent(path), path.name, None))

    def sync_dir(self, path: Path) -> None:
        self.enter("sync_dir", path)
        self._take_descriptor(path)
        node = self._disk.find(path)
        if node is None:
            raise FileNotFoundError(str(path))
        if isinstance(node, Inode):
            raise DiskFailedError(f"{path}: Not a directory")
        self._disk.sync_directory(node)

    def sync_all(self, path: Path) -> None:
        if not isinstance(top := self._disk.find(path), Directory):
            raise FileNotFoundError(str(path))
        try:
            self.enter("sync", path)
        except DiskFailedError:
            for inode in self._disk.inodes(top):  # others may lie in another file system
                inode.fail_sync(self.drops)
            raise
        self._disk.sync_all()

    def free_bytes(self, path: Path) -> int:
        self.enter("free", path)
        if self._disk.find(path) is None:
            raise FileNotFoundError(str(path))
        return max(0, self.total_bytes(path) - self._disk.used_bytes())

    def free_inodes(self, path: Path) -> int:
        self.enter("free", path)
        return self.inodes_left

    def total_bytes(self, path: Path) -> int:
        self.enter("free", path)
        return UNLIMITED_BYTES if self._capacity_bytes is None else self._capacity_bytes

    def lock(self, path: Path) -> MemLock:
        self.enter("open", path)
        inode = self._open_inode(path, create=True)
        if inode in self._locked:
            raise LockedError(f"{path} is held by another process")
        self._locked[inode] = None
        return MemLock(self, inode)

    def _parent(self, path: Path) -> Directory:
        parent = self._disk.find(path.parent)
        if parent is None:
            raise FileNotFoundError(str(path))
        if isinstance(parent, Inode):
            raise DiskFailedError(f"{path.parent}: Not a directory")
        return parent

    def _open_inode(self, path: Path, *, create: bool = False) -> Inode:
        node = self._disk.find(path)
        if isinstance(node, Directory):
            raise DiskFailedError(f"{path}: Is a directory")
        if node is None:
            parent = self._parent(path)
            if not create:
                raise FileNotFoundError(str(path))
            node = Inode()
            self._disk.change_names(NameChange(parent, path.name, node))
        return node
