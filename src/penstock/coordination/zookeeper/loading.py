"""Reading from ZooKeeper: the head, stretches of the feed, and the whole tree.

A tree takes many reads, between which others write. So it is read loosely between two looks at the head, and the
changes between the two are laid over it: an event is skipped where the node at hand is newer.
"""

import asyncio
from collections.abc import Sequence

from penstock.coordination.tree import Change, CoordinationError, FeedGapError, Node
from penstock.coordination.zookeeper.layout import Head, Layout, LayoutError, decode_change, decode_node
from penstock.coordination.zookeeper.link import Link, Watch

# Each attempt fails only when over a thousand changes were made while the tree was read.
_ATTEMPTS_MAX = 5


class Reader:
    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def head(self, watch: Watch | None = None, *, sync: bool = False) -> Head:
        """With `sync`, no older than when it was asked for, whichever server answers."""
        path = self._layout.head
        if sync:
            # Both are sent at once: a session's requests are answered in order.
            _, stored = await asyncio.gather(self._link.sync(path), self._link.get(path, watch))
        else:
            stored = await self._link.get(path, watch)
        if stored is None:
            raise LayoutError(f"{path} is gone from ZooKeeper: somebody has deleted the cluster's metadata")
        return Head.decode(stored.data, stored.version)

    async def changes(self, after: int, head: Head) -> list[Change]:
        """Those behind number `after`, up to the head's."""
        if after + 1 < head.oldest and after < head.number:
            raise FeedGapError(f"change {after + 1} asked for; the feed begins with {head.oldest}")
        numbers = range(after + 1, head.number + 1)
        if len(numbers) == 1:
            entries = [await self._link.get(self._layout.entry(head.number))]
        else:
            entries = await self._link.get_each([self._layout.entry(number) for number in numbers])
        changes = []
        for number, entry in zip(numbers, entries, strict=True):
            if entry is None:
                raise FeedGapError(f"change {number} is no longer in the feed")
            changes.append(decode_change(entry.data))
        return changes

    async def tree(self) -> tuple[dict[str, Node], Head]:
        """Every node but the root, as of the head that comes with it."""
        for _ in range(_ATTEMPTS_MAX):
            before = await self.head()
            nodes = await self._walk()
            head = await self.head()
            try:
                _lay_over(nodes, await self.changes(before.number, head))
            except FeedGapError:
                continue
            return nodes, head
        raise CoordinationError("the metadata changes faster than it can be read")

    async def _walk(self) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        parents = ["/"]
        while parents:
            names = await self._link.children_each([self._layout.node(parent) for parent in parents])
            paths = [
                f"{parent.rstrip('/')}/{name}"
                for parent, found in zip(parents, names, strict=True)
                for name in found
            ]
            stored = await self._link.get_each([self._layout.node(path) for path in paths])
            parents = []
            for path, node in zip(paths, stored, strict=True):
                if node is None:
                    continue  # deleted since it was listed
                nodes[path] = decode_node(path, node.data, node.version)
                if node.children:
                    parents.append(path)
        return nodes


def _lay_over(nodes: dict[str, Node], changes: Sequence[Change]) -> None:
    for change in changes:
        for event in change.events:
            found = nodes.get(event.path)
            if found is not None and found.modified > change.number:
                continue
            if event.node is None:
                nodes.pop(event.path, None)
            else:
                nodes[event.path] = event.node
