"""Key to last offset for any number of keys, in memory of a fixed size.

What is kept of a key is a 128-bit hash: two keys with the same one would be taken for one key, and nobody knows how
to find two such keys for BLAKE2. A slot is 24 bytes (two halves of the hash, the offset) in three flat arrays with
linear probing; nothing is ever removed but everything. All of it is filled with zeros when it is made.
"""

from hashlib import blake2b
from struct import Struct

SLOT_BYTES = 24
_HASH_BYTES = 16
_halves = Struct("<QQ").unpack


class OffsetMap:
    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self._slots = slots = max(memory_bytes // SLOT_BYTES, 2)
        # One slot stays free whatever is asked for, so that a search ends.
        self.keys_max = max(1, min(int(slots * load_factor), slots - 1))
        self._first = memoryview(bytearray(8 * slots)).cast("Q")
        self._second = memoryview(bytearray(8 * slots)).cast("Q")
        self._offsets = memoryview(bytearray(8 * slots)).cast("Q")
        self._empty_hash = blake2b(digest_size=_HASH_BYTES)
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.keys_max

    def put(self, key: bytes, offset: int) -> bool:
        """The key's last offset so far; False when there is no room for one more key."""
        digest = self._empty_hash.copy()
        digest.update(key)
        first, second = _halves(digest.digest())
        slots, firsts = self._slots, self._first
        at = first % slots
        while True:
            found = firsts[at]
            if found == first and self._second[at] == second:
                break
            # All zeros is a free slot; that a key hashes to it is as likely as that two keys share a hash.
            if not found and not self._second[at]:
                if self.count >= self.keys_max:
                    return False
                firsts[at] = first
                self._second[at] = second
                self.count += 1
                break
            at += 1
            if at == slots:
                at = 0
        self._offsets[at] = offset
        return True

    def get(self, key: bytes) -> int:
        """The last offset of the key, -1 where none was put."""
        digest = self._empty_hash.copy()
        digest.update(key)
        first, second = _halves(digest.digest())
        slots, firsts = self._slots, self._first
        at = first % slots
        while True:
            found = firsts[at]
            if found == first and self._second[at] == second:
                offset: int = self._offsets[at]
                return offset
            if not found and not self._second[at]:
                return -1
            at += 1
            if at == slots:
                at = 0
