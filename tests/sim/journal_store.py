"""The metadata of a single node on simulated files: what `EmbeddedStore` promises, with every step a file operation.

SQLite does not run on them. So each change is appended to one file and synced, as SQLite appends it to its log; a
process may be killed between the two, and the power may take what was not synced. Whoever opens the file makes durable
what is in it before anybody goes by it (that SQLite's files are treated so, `test_embedded.py` holds).
"""

import pickle
import struct
from pathlib import Path

from penstock.coordination.feed import ChangeFeed
from penstock.coordination.memory import MemoryStore
from penstock.coordination.tree import Change, Event
from penstock.core.crc32c import crc32c
from penstock.testing.mem_files import MemFiles

_HEAD = struct.Struct("<II")  # size and checksum of what follows


class JournalStore(MemoryStore):
    settles = True

    def __init__(self, files: MemFiles, path: Path) -> None:
        super().__init__()
        self._file = files.open(path, create=True)
        found = files.read(path)
        number = self._replay(found)
        if self.settles:
            files.write_atomically(path, found[: self._size])
            self._file = files.open(path)
        self._feed = ChangeFeed(number)

    def _replay(self, data: bytes) -> int:
        """The number of the last change that is whole."""
        number = self._size = 0
        while len(data) - self._size >= _HEAD.size:
            size, checksum = _HEAD.unpack_from(data, self._size)
            body = data[self._size + _HEAD.size :][:size]
            if len(body) < size or not size or crc32c(body) != checksum:
                break
            number, events = pickle.loads(body)
            self._state.apply(event for event in events if event.node or event.path in self._state.nodes)
            self._size += _HEAD.size + size
        return number

    def _commit(self, events: tuple[Event, ...]) -> Change:
        if events:
            lasting = [event for event in events if event.node is None or not event.node.owner]
            body = pickle.dumps((self._feed.last + 1, lasting))
            self._file.pwrite(_HEAD.pack(len(body), crc32c(body)) + body, self._size)
            self._file.sync()
            self._size += _HEAD.size + len(body)
        return super()._commit(events)
