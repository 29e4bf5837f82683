"""One controller at a time, on any coordination store: an ephemeral node says who, an epoch fences the one before.

    /controller          ephemeral: who it is. Whoever creates it is the controller until its session ends.
    /controller-epoch    lasting: how many there have been. Its version guards every write of a controller.

Both are written in one multi. So whoever is elected has raised the epoch, and every multi of an earlier controller,
which checks the version it raised it to, is refused, however long it was paused and whatever it still believes.

    election = Election(tree, b'{"broker":1}')
    mandate = await election.win()              # waits while another one holds the office
    metadata = MetadataStore(mandate, random)   # a mandate is a tree whose every multi is guarded
    await mandate.until_lost()
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.coordination.tree import (
    ANY_VERSION,
    Change,
    Check,
    ConflictError,
    CoordinationError,
    Create,
    Delete,
    FeedGapError,
    Node,
    Operation,
    Set,
    Snapshot,
    Tree,
)

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller-epoch"


class FencedError(CoordinationError):
    """Another controller was elected; nothing happened, and nothing will under this mandate."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """Who holds the office, as it described itself, and the epoch."""

    data: bytes
    epoch: int


class Election:
    def __init__(self, tree: Tree, data: bytes) -> None:
        """`data` is how this candidate describes itself to the others."""
        self._tree = tree
        self._data = data

    async def incumbent(self) -> Incumbent | None:
        holder = await self._tree.get(CONTROLLER)
        epoch = await self._tree.get(CONTROLLER_EPOCH)
        return None if holder is None or epoch is None else Incumbent(holder.data, _epoch(epoch))

    async def win(self) -> "Mandate":
        """Stand for election until it is won. After a `ConnectionLostError` just ask again: a victory counts."""
        while True:
            snapshot = await self._tree.snapshot()
            holder, epoch = snapshot.nodes.get(CONTROLLER), snapshot.nodes.get(CONTROLLER_EPOCH)
            if holder is not None:
                if holder.owner == self._tree.session and epoch is not None:
                    return Mandate(self._tree, epoch.version, _epoch(epoch))
                await self._until_vacant(snapshot.number)
                continue
            number = 1 if epoch is None else _epoch(epoch) + 1
            raised: Operation = (
                Create(CONTROLLER_EPOCH, b"%d" % number)
                if epoch is None
                else Set(CONTROLLER_EPOCH, b"%d" % number, epoch.version)
            )
            try:
                await self._tree.multi([raised, Create(CONTROLLER, self._data, ephemeral=True)])
            except ConflictError:
                continue  # another candidate was faster
            return Mandate(self._tree, 0 if epoch is None else epoch.version + 1, number)

    async def _until_vacant(self, number: int) -> None:
        try:
            async for change in self._tree.changes(number):
                if any(event.path == CONTROLLER and event.node is None for event in change.events):
                    return
        except FeedGapError:
            return  # it may have become vacant in what was missed


class Mandate:
    """The tree as the controller of one epoch sees it: it can be written only while no later one was elected."""

    def __init__(self, tree: Tree, version: int, epoch: int) -> None:
        self._tree = tree
        self.epoch = epoch
        # For whoever builds multis by hand.
        self.guard = Check(CONTROLLER_EPOCH, version)

    @property
    def session(self) -> int:
        return self._tree.session

    async def multi(self, operations: Sequence[Operation]) -> Change:
        """As `Tree.multi`; `FencedError` once another controller was elected."""
        try:
            return await self._tree.multi([self.guard, *operations])
        except ConflictError as error:
            if error.path == CONTROLLER_EPOCH:
                raise FencedError(f"controller epoch {self.epoch} is over") from error
            raise

    async def until_lost(self) -> None:
        """Return when the office is no longer ours: the session ended, or it was given up or taken away."""
        while True:
            snapshot = await self._tree.snapshot()
            holder = snapshot.nodes.get(CONTROLLER)
            if holder is None or holder.owner != self.session:
                return
            try:
                async for change in self._tree.changes(snapshot.number):
                    if any(event.path == CONTROLLER for event in change.events):
                        return
            except FeedGapError:
                continue

    async def resign(self) -> None:
        """Give up the office, so that another can be elected without waiting for the session's end."""
        await self.multi([Delete(CONTROLLER, ANY_VERSION)])

    # -- the rest of Tree, as it is --

    async def get(self, path: str) -> Node | None:
        return await self._tree.get(path)

    async def children(self, path: str) -> tuple[str, ...]:
        return await self._tree.children(path)

    async def snapshot(self, path: str = "/") -> Snapshot:
        return await self._tree.snapshot(path)

    def changes(self, after: int) -> AsyncIterator[Change]:
        return self._tree.changes(after)

    async def until_expired(self) -> None:
        await self._tree.until_expired()

    async def close(self) -> None:
        await self._tree.close()


def _epoch(node: Node) -> int:
    try:
        return int(node.data)
    except ValueError as error:
        raise CoordinationError(f"{CONTROLLER_EPOCH} does not hold a number: {node.data[:100]!r}") from error


if TYPE_CHECKING:

    def _is_a_tree(mandate: Mandate) -> Tree:
        return mandate
