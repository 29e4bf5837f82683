"""The coordination store of a cluster: a ZooKeeper ensemble under the same contract as the store of a single node."""

import asyncio
from contextlib import suppress

from penstock.coordination.tree import CoordinationError, Create
from penstock.coordination.zookeeper.address import Address
from penstock.coordination.zookeeper.kazoo_errors import AccessDeniedError
from penstock.coordination.zookeeper.layout import EMPTY_HEAD, VERSION, Layout, check_layout_version
from penstock.coordination.zookeeper.link import Link
from penstock.coordination.zookeeper.session import ZooKeeperTree

SESSION_TIMEOUT_S = 18.0
# On top of a session's length: an attempt to connect may take that long before the next server is tried.
_PATIENCE_S = 5.0


class ZooKeeperStore:
    """Every session from `connect` has its own connection."""

    def __init__(
        self,
        address: Address,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        connection_timeout_s: float | None = None,
        credential: str | None = None,
    ) -> None:
        """`credential` is `user:password`: only who has it may read or write what is made with it."""
        self._address = address
        self._session_timeout_s = session_timeout_s
        self._connection_timeout_s = connection_timeout_s or session_timeout_s + _PATIENCE_S
        self._credential = credential
        self._layout = Layout(address.chroot)
        self._trees: list[ZooKeeperTree] = []

    async def connect(self) -> ZooKeeperTree:
        """A new session; `ConnectionLostError` when ZooKeeper does not answer in time."""
        tree: ZooKeeperTree | None = None

        def moved() -> None:
            if tree is not None:
                tree.link_moved()

        link = Link(self._address, self._session_timeout_s, self._credential, moved)
        try:
            await link.open(self._connection_timeout_s)
            await self._lay_ground(link)
            tree = ZooKeeperTree(link, self._layout)
            await tree.begin()
        except BaseException:
            with suppress(CoordinationError):
                await link.close()
            raise
        self._trees = [*(earlier for earlier in self._trees if not earlier.closed), tree]
        return tree

    async def close(self) -> None:
        """End every session."""
        trees, self._trees = self._trees, []
        await asyncio.gather(*(tree.close() for tree in trees))

    async def _lay_ground(self, link: Link) -> None:
        """The first one ever makes the places; the chroot's parents may be others' too."""
        layout = self._layout
        head, version = await asyncio.gather(link.get(layout.head), link.get(layout.version))
        if version is not None:
            check_layout_version(layout.version, version.data)
        if head is not None:
            if (
                version is None
            ):  # an earlier release made the rest; without the right to add to it, it stays so
                with suppress(AccessDeniedError):
                    await link.create(layout.version, b"%d" % VERSION)
            return
        for path in layout.chroot_parts():
            await link.create(path, b"", open_to_all=path != layout.chroot)
        refused = await link.multi(
            [
                Create(layout.head, EMPTY_HEAD.encode()),
                Create(layout.sessions, b""),
                Create(layout.root, b""),
                Create(layout.version, b"%d" % VERSION),
            ]
        )
        if refused is not None and await link.get(layout.head) is None:
            raise AccessDeniedError(f"nothing can be made below {layout.chroot or '/'} in ZooKeeper")
