"""Where the tree and its feed live in ZooKeeper, and how each is written.

    <chroot>/tree/<path>        the node at <path>
    <chroot>/feed               the head: number of the last change, oldest entry kept, bytes of all entries
    <chroot>/feed/<number>      one change, as the watchers get it
    <chroot>/sessions/<id>      ephemeral: the session with this id lives
    <chroot>/version            of everything drawn here, in decimal; 1 where an earlier release made the rest

Every multi sets the head, guarded by the head's version, and creates the next entry. So changes have one order and no
holes, a state read between two looks at the same head is whole, and what was decided from an older state is refused.

A node (numbers in decimal, then the bytes as they were given; ZooKeeper itself keeps the version):

    created SP modified SP owner LF data

A change (big-endian; a path that was deleted has data length -1 and nothing behind it):

    number  previous  events | path bytes  path  data bytes | version  created  modified  owner  data | ...
    8       8         4      | 2           ...   4          | 4        8        8         8      ...
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.coordination.tree import Change, CoordinationError, Create, Event, Node, Operation, Set
from penstock.core.formats import newer

# ZooKeeper's own limit (jute.maxbuffer): it closes the connection of who sends more.
REQUEST_BYTES_MAX = 1024 * 1024 - 1
# It stands in front of every path of a multi: OPERATION_BYTES counts on it.
CHROOT_CHARS_MAX = 100

_CHANGE = struct.Struct(">qqi")
_PATH = struct.Struct(">H")
_DATA = struct.Struct(">i")
_NODE = struct.Struct(">iqqQ")
_DELETED = -1
_SESSION_BITS = (1 << 64) - 1

# On the wire: xid and type once, closing header once; each operation has a header and length fields, a creation also
# its flags and access list.
_REQUEST_BYTES = 4 + 4 + 4 + 9
_OPERATION_BYTES = 9 + 4 + 4
_CREATION_BYTES = 4 + 4 + 4 + 27


VERSION = 1


class LayoutError(CoordinationError):
    """ZooKeeper holds something at our place that we did not write."""


@dataclass(frozen=True, slots=True)
class Head:
    number: int
    oldest: int
    kept_bytes: int
    # ZooKeeper's version of the head's node: the guard of the next multi.
    version: int

    def encode(self) -> bytes:
        return b"%d %d %d" % (self.number, self.oldest, self.kept_bytes)

    @classmethod
    def decode(cls, data: bytes, version: int) -> "Head":
        try:
            number, oldest, kept_bytes = map(int, data.split())
        except ValueError as error:
            raise LayoutError(f"the feed's head does not hold what it should: {data[:100]!r}") from error
        return cls(number, oldest, kept_bytes, version)


EMPTY_HEAD = Head(number=0, oldest=1, kept_bytes=0, version=0)


class Layout:
    def __init__(self, chroot: str) -> None:
        """`chroot` is a path, or empty."""
        self.chroot = chroot
        self.root = f"{chroot}/tree"
        self.head = f"{chroot}/feed"
        self.sessions = f"{chroot}/sessions"
        self.version = f"{chroot}/version"

    def node(self, path: str) -> str:
        return self.root if path == "/" else self.root + path

    def entry(self, number: int) -> str:
        return f"{self.head}/{number}"

    def session(self, session: int) -> str:
        return f"{self.sessions}/{session:016x}"

    def chroot_parts(self) -> list[str]:
        """Every path from the first part of the chroot down to itself."""
        parts = self.chroot.split("/")[1:]
        return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def check_layout_version(path: str, data: bytes) -> None:
    try:
        found = int(data)
    except ValueError as error:
        raise LayoutError(f"{path} was not written by penstock: {data[:100]!r}") from error
    if found > VERSION:
        raise LayoutError(f"ZooKeeper's {newer(path, found, VERSION)}")


def unsigned(session: int) -> int:
    """ZooKeeper's session ids are signed, in places."""
    return session & _SESSION_BITS


def encode_node(node: Node, data: bytes) -> bytes:
    return b"%d %d %d\n%b" % (node.created, node.modified, node.owner, data)


def decode_node(path: str, stored: bytes, version: int) -> Node:
    header, newline, data = stored.partition(b"\n")
    try:
        created, modified, owner = map(int, header.split())
    except ValueError as error:
        raise LayoutError(f"{path} was not written by penstock: {stored[:100]!r}") from error
    return Node(data if newline else b"", version, created, modified, owner)


def encode_change(change: Change) -> bytes:
    parts = [_CHANGE.pack(change.number, change.previous, len(change.events))]
    for event in change.events:
        path, node = event.path.encode(), event.node
        parts += [_PATH.pack(len(path)), path, _DATA.pack(_DELETED if node is None else len(node.data))]
        if node is not None:
            parts += [_NODE.pack(node.version, node.created, node.modified, node.owner), node.data]
    return b"".join(parts)


def decode_change(data: bytes) -> Change:
    try:
        return _decode_change(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise LayoutError(f"an entry of the feed does not hold what it should: {error}") from error


def _decode_change(data: bytes) -> Change:
    number, previous, count = _CHANGE.unpack_from(data)
    at = _CHANGE.size
    events = []
    for _ in range(count):
        (path_bytes,) = _PATH.unpack_from(data, at)
        at += _PATH.size
        path = data[at : at + path_bytes].decode()
        at += path_bytes
        (data_bytes,) = _DATA.unpack_from(data, at)
        at += _DATA.size
        node = None
        if data_bytes != _DELETED:
            version, created, modified, owner = _NODE.unpack_from(data, at)
            at += _NODE.size
            node = Node(data[at : at + data_bytes], version, created, modified, owner)
            at += data_bytes
        events.append(Event(path, node))
    return Change(number, previous, tuple(events))


def request_bytes(operations: Sequence[Operation]) -> int:
    """How much a multi takes on the wire, at most."""
    total = _REQUEST_BYTES
    for operation in operations:
        total += _OPERATION_BYTES + len(operation.path.encode())
        if isinstance(operation, Create):
            total += _CREATION_BYTES + len(operation.data)
        elif isinstance(operation, Set):
            total += 4 + len(operation.data)
    return total
