"""The coordination seam: a versioned tree, as small as ZooKeeper and SQLite can both be.

What consumers rely on, whichever implementation stands behind it (the contract suite holds each to it):

- A node has bytes, a version that grows by one with every set, and the numbers of the changes that created and
  last modified it. The creation number is never used again, so it serves as an epoch.
- Writes are multis: all of it happens or none, later operations see what earlier ones did, and a refused one says
  why with a declared error. `ConnectionLostError` alone leaves open whether it happened.
- Every committed multi is one `Change`, and so is the end of a session that had ephemeral nodes. Changes come in
  order, each names its predecessor, and an event carries the whole node: a consumer applies them one by one, and a
  predecessor it has not seen is a gap, after which it loads a snapshot again.
- A snapshot contains everything up to its number and may be newer in places. Applying the changes after that
  number is harmless, provided an event older than the node at hand is skipped.
- One `Tree` is one session. Its ephemeral nodes vanish with it.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import PenstockError

# ZooKeeper takes requests of up to 1 MB; less than half of it leaves room for a feed entry that repeats what was
# written.
MULTI_BYTES_MAX = 480 * 1024
# What an operation costs on top of its path and data: half of what it adds to the request and to the feed entry
# together (coordination/zookeeper/layout.py draws both).
OPERATION_BYTES = 120
PATH_CHARS_MAX = 1024
# Changes kept for watchers that lag; one that falls further behind reloads.
CHANGES_KEPT_MAX = 1024

ANY_VERSION = -1


class CoordinationError(PenstockError):
    """Root of what the coordination store says no with."""


class BadRequestError(CoordinationError):
    """A path or multi that no store would take: a mistake of the caller."""


class ConflictError(CoordinationError):
    """The tree is not as the multi expects it; nothing happened. Read again and decide again."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class NoNodeError(ConflictError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "does not exist")


class NodeExistsError(ConflictError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "exists already")


class NotEmptyError(ConflictError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "has children")


class VersionConflictError(ConflictError):
    def __init__(self, path: str, expected: int, found: int) -> None:
        super().__init__(path, f"has version {found}, not {expected}")


class ConnectionLostError(CoordinationError):
    """No answer came: a read may be repeated, a write may or may not have happened."""


class SessionExpiredError(CoordinationError):
    """The session is over and its ephemeral nodes are gone; only a new session helps."""


class FeedGapError(CoordinationError):
    """Changes are missing between what the watcher has and what the feed still holds: load a snapshot."""


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int
    created: int
    modified: int
    # The session whose end removes the node; 0 for one that stays.
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """The node exists, with this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


@dataclass(frozen=True, slots=True)
class Event:
    """What became of one path; no node means it was deleted."""

    path: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class Change:
    number: int
    previous: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    number: int
    nodes: Mapping[str, Node]


class Tree(Protocol):
    @property
    def session(self) -> int: ...

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> tuple[str, ...]:
        """The names below a node, sorted; `NoNodeError` when it does not exist."""
        ...

    async def snapshot(self, path: str = "/") -> Snapshot:
        """A node and everything below it, in path order."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> Change:
        """All or nothing. The change can be applied at once, or awaited in the feed. No writes: an empty change."""
        ...

    def changes(self, after: int) -> AsyncIterator[Change]:
        """Every change behind number `after`, then each new one; `FeedGapError` when some are no longer held."""
        ...

    async def until_expired(self) -> None:
        """Return when the session is over."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes vanish."""
        ...


# No empty, "." or ".." part; no control characters; nothing that UTF-8 cannot carry, and nothing that ZooKeeper
# refuses: characters for private use, and those that Java writes as two.
_PATH = re.compile(
    r"/|(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+)+"
)


def check_path(path: str) -> None:
    if len(path) > PATH_CHARS_MAX or _PATH.fullmatch(path) is None:
        raise BadRequestError(f"not a path of the tree: {path[:PATH_CHARS_MAX]!r}")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def multi_bytes(operations: Sequence[Operation]) -> int:
    return sum(operation_bytes(operation) for operation in operations)


def operation_bytes(operation: Operation) -> int:
    data = len(operation.data) if isinstance(operation, Create | Set) else 0
    path = operation.path
    return (len(path) if path.isascii() else len(path.encode("utf-8", "replace"))) + data + OPERATION_BYTES


def check_multi(operations: Sequence[Operation]) -> None:
    """What every implementation refuses before it looks at its nodes."""
    for operation in operations:
        check_path(operation.path)
        if operation.path == "/" and not isinstance(operation, Check):
            raise BadRequestError("the root cannot be written")
    size_bytes = multi_bytes(operations)
    if size_bytes > MULTI_BYTES_MAX:
        raise BadRequestError(
            f"a multi of {size_bytes} bytes, more than {MULTI_BYTES_MAX}: write it in parts"
        )
