"""Writing to ZooKeeper: a change that was planned from the feed's head, as one multi.

All of it happens or nothing, in this order:

    check   the session's own node: one whose session ended can write nothing, whatever it believes
    set     the feed's head, on the version the plan was made from: a plan from an older state is refused
    create  the feed's next entry
    delete  the feed's oldest entries, so that it stays within its bounds: whoever writes trims
    ...     the operations themselves
"""

from collections.abc import Sequence

from penstock.coordination.tree import CHANGES_KEPT_MAX, Change, Check, Create, Delete, Operation, Set
from penstock.coordination.zookeeper.kazoo_errors import Refused
from penstock.coordination.zookeeper.layout import Head, Layout, encode_change, encode_node
from penstock.coordination.zookeeper.link import Link

# ZooKeeper keeps everything in memory: entries of large changes go before there are many.
FEED_BYTES_MAX = 16 * 1024 * 1024
# Entries that one multi may delete; two per change are enough to come back within the bounds.
_TRIMMED_AT_ONCE = 8

# Places in the multi; see above.
AT_SESSION, AT_HEAD = 0, 1


class Writer:
    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout

    async def write(
        self, head: Head, change: Change, operations: Sequence[Operation] | None
    ) -> tuple[Refused | None, Head]:
        """What stood in the way, if anything did, and the head when nothing does.

        `operations` are what brings the change about; None: deletions.
        """
        if operations is None:
            operations = [Delete(event.path) for event in change.events]
        entry = encode_change(change)
        trimmed, trimmed_bytes = await self._to_trim(head, len(entry))
        after = Head(
            change.number,
            head.oldest + len(trimmed),
            head.kept_bytes + len(entry) - trimmed_bytes,
            head.version + 1,
        )
        refused = await self._link.multi(
            [
                Check(self._layout.session(self._link.session)),
                Set(self._layout.head, after.encode(), head.version),
                Create(self._layout.entry(change.number), entry),
                *(Delete(self._layout.entry(number)) for number in trimmed),
                *self._stored(operations, change),
            ]
        )
        return refused, after

    async def _to_trim(self, head: Head, more_bytes: int) -> tuple[range, int]:
        """The entries that have to go for one more, and their size. Normally one, or none."""
        kept = head.number - head.oldest + 1
        too_many = kept + 1 - CHANGES_KEPT_MAX
        trimmed_bytes = count = 0
        while count < min(kept, _TRIMMED_AT_ONCE):
            too_large = head.kept_bytes + more_bytes - trimmed_bytes > FEED_BYTES_MAX
            if count >= too_many and not too_large:
                break
            length = await self._link.length_bytes(self._layout.entry(head.oldest + count))
            if length is None:
                break  # somebody was faster, and the head will say so
            trimmed_bytes += length
            count += 1
        return range(head.oldest, head.oldest + count), trimmed_bytes

    def _stored(self, operations: Sequence[Operation], change: Change) -> list[Operation]:
        """The operations on ZooKeeper's own nodes. Where one path is written twice, only the last has to be right."""
        nodes = {event.path: event.node for event in change.events}
        stored: list[Operation] = []
        for operation in operations:
            path = self._layout.node(operation.path)
            match operation:
                case Check(_, version):
                    stored.append(Check(path, version))
                case Delete(_, version):
                    stored.append(Delete(path, version))
                case Create(_, data):
                    node = nodes.get(operation.path)
                    stored.append(Create(path, encode_node(node, data) if node else b""))
                case Set(_, data, version):
                    node = nodes.get(operation.path)
                    stored.append(Set(path, encode_node(node, data) if node else b"", version))
        return stored
