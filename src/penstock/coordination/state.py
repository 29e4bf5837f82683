"""The tree itself, without I/O: plan a multi against it, then apply the events. Both local stores are built on it."""

from collections.abc import Iterable, Sequence

from penstock.coordination.tree import (
    ANY_VERSION,
    BadRequestError,
    Check,
    Create,
    Delete,
    Event,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    Snapshot,
    VersionConflictError,
    check_multi,
    check_path,
    parent_of,
)

_ROOT = Node(data=b"", version=0, created=0, modified=0)


class TreeState:
    def __init__(self, nodes: Iterable[tuple[str, Node]] = ()) -> None:
        self.nodes: dict[str, Node] = {"/": _ROOT}
        # Paths of the children, as dictionaries because iteration over sets differs from run to run.
        self._children: dict[str, dict[str, None]] = {"/": {}}
        for path, node in nodes:
            self._put(path, node)

    def get(self, path: str) -> Node | None:
        check_path(path)
        return self.nodes.get(path)

    def child_count(self, path: str) -> int:
        return len(self._children.get(path, ()))

    def children(self, path: str) -> tuple[str, ...]:
        check_path(path)
        if path not in self.nodes:
            raise NoNodeError(path)
        return tuple(sorted(child.rpartition("/")[2] for child in self._children[path]))

    def snapshot(self, path: str, number: int) -> Snapshot:
        check_path(path)
        if path not in self.nodes:
            raise NoNodeError(path)
        found: dict[str, Node] = {}
        waiting = [path]
        while waiting:
            at = waiting.pop()
            found[at] = self.nodes[at]
            waiting += sorted(self._children[at], reverse=True)
        return Snapshot(number=number, nodes=found)

    def plan(self, operations: Sequence[Operation], number: int, session: int) -> tuple[Event, ...]:
        """What the multi would change as change `number`; raises a declared error and changes nothing."""
        check_multi(operations)
        draft = _Draft(self, number, session)
        for operation in operations:
            match operation:
                case Check(path, version):
                    draft.expect(path, version)
                case Create(path, data, ephemeral):
                    draft.create(path, data, ephemeral=ephemeral)
                case Set(path, data, version):
                    draft.set(path, data, version)
                case Delete(path, version):
                    draft.delete(path, version)
        return draft.events()

    def owned_by(self, session: int) -> tuple[Event, ...]:
        """The events of that session's end."""
        return tuple(Event(path, None) for path, node in self.nodes.items() if node.owner == session)

    def apply(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.node is None:
                self._drop(event.path)
            else:
                self._put(event.path, event.node)

    def _put(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self._children.setdefault(path, {})
        self._children.setdefault(parent_of(path), {})[path] = None

    def _drop(self, path: str) -> None:
        del self.nodes[path]
        del self._children[path]
        # The parent may have gone first when both were deleted in one multi.
        self._children.get(parent_of(path), {}).pop(path, None)


class _Draft:
    """The tree as it would be, kept as differences."""

    def __init__(self, base: TreeState, number: int, session: int) -> None:
        self._base = base
        self._number = number
        self._session = session
        self._touched: dict[str, Node | None] = {}
        self._children_more: dict[str, int] = {}

    def expect(self, path: str, version: int) -> Node:
        node = self._get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in {ANY_VERSION, node.version}:
            raise VersionConflictError(path, version, node.version)
        return node

    def create(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        if self._get(path) is not None:
            raise NodeExistsError(path)
        parent = parent_of(path)
        if self.expect(parent, ANY_VERSION).owner:
            raise BadRequestError(f"{parent} is ephemeral and cannot have children")
        owner = self._session if ephemeral else 0
        self._put(path, Node(data, version=0, created=self._number, modified=self._number, owner=owner))
        self._count(parent, 1)

    def set(self, path: str, data: bytes, version: int) -> None:
        old = self.expect(path, version)
        self._put(path, Node(data, old.version + 1, old.created, self._number, old.owner))

    def delete(self, path: str, version: int) -> None:
        self.expect(path, version)
        if self._base.child_count(path) + self._children_more.get(path, 0):
            raise NotEmptyError(path)
        self._put(path, None)
        self._count(parent_of(path), -1)

    def events(self) -> tuple[Event, ...]:
        # A node created and deleted in the same multi was never there.
        return tuple(
            Event(path, node)
            for path, node in self._touched.items()
            if node is not None or path in self._base.nodes
        )

    def _get(self, path: str) -> Node | None:
        return self._touched[path] if path in self._touched else self._base.nodes.get(path)

    def _put(self, path: str, node: Node | None) -> None:
        # Last touch decides the place, so that a parent made again comes before its new children.
        self._touched.pop(path, None)
        self._touched[path] = node

    def _count(self, path: str, more: int) -> None:
        self._children_more[path] = self._children_more.get(path, 0) + more
