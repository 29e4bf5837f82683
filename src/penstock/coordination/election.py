"""One controller at a time, on any coordination store: an ephemeral node says who, an epoch fences the one before.

    /controller          ephemeral: who it is. Whoever creates it is the controller until its session ends.
    /controller-epoch    lasting: set by each. Its version is the epoch, and guards every write of a controller.

Both are written in one multi. So whoever is elected has raised the epoch, and every multi of an earlier controller,
which checks the version it raised it to, is refused, however long it was paused and whatever it still believes.

    election = Election(tree, b'{"broker":1}')
    mandate = await election.win()              # waits while another one holds the office
    metadata = MetadataStore(mandate, random)   # a mandate is a tree whose every multi is guarded
    await mandate.until_lost()
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
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
    NodeExistsError,
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


async def stand(tree: Tree, data: bytes) -> "Mandate | None":
    """Become controller if nobody is; None when another one is, or was faster.

    After a `ConnectionLostError` just stand again: a victory whose answer was lost counts.
    """
    epoch = await tree.get(CONTROLLER_EPOCH)
    if epoch is None:
        with suppress(NodeExistsError):
            await tree.multi([Create(CONTROLLER_EPOCH, b"{}")])
    holder, epoch = await tree.get(CONTROLLER), await tree.get(CONTROLLER_EPOCH)
    if epoch is None or (holder is not None and holder.owner != tree.session):
        return None
    if holder is not None:
        # Nobody else could raise the epoch while this session holds the office.
        return Mandate(tree, epoch.version)
    try:
        await tree.multi(
            [Set(CONTROLLER_EPOCH, data, epoch.version), Create(CONTROLLER, data, ephemeral=True)]
        )
    except ConflictError:
        return None
    return Mandate(tree, epoch.version + 1)


class Election:
    def __init__(self, tree: Tree, data: bytes) -> None:
        """`data` is how this candidate describes itself to the others."""
        self._tree = tree
        self._data = data

    async def incumbent(self) -> Incumbent | None:
        nodes = (await self._tree.snapshot()).nodes
        holder, epoch = nodes.get(CONTROLLER), nodes.get(CONTROLLER_EPOCH)
        return None if holder is None or epoch is None else Incumbent(holder.data, epoch.version)

    async def win(self) -> "Mandate":
        """Stand for election until it is won."""
        while True:
            snapshot = await self._tree.snapshot()
            holder = snapshot.nodes.get(CONTROLLER)
            if holder is None or holder.owner == self._tree.session:
                mandate = await stand(self._tree, self._data)
                if mandate is not None:
                    return mandate
            else:
                await self._until_vacant(snapshot.number)

    async def _until_vacant(self, number: int) -> None:
        try:
            async for change in self._tree.changes(number):
                if any(event.path == CONTROLLER and event.node is None for event in change.events):
                    return
        except FeedGapError:
            return  # it may have become vacant in what was missed


class Mandate:
    """The tree as the controller of one epoch sees it: it can be written only while no later one was elected."""

    def __init__(self, tree: Tree, epoch: int) -> None:
        self._tree = tree
        self.epoch = epoch
        # For whoever builds multis by hand.
        self.guard = Check(CONTROLLER_EPOCH, epoch)

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


if TYPE_CHECKING:

    def _is_a_tree(mandate: Mandate) -> Tree:
        return mandate
