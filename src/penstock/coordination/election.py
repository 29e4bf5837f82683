"""Who is controller: an ephemeral node says who, and the version of another one fences everybody who was before.

Winning sets the epoch node in the same multi that creates `/controller`. What comes back is a check on that version;
the controller puts it into every multi. One that was paused or cut off past its session, while another was elected,
fails that check: it can write nothing, whatever it still believes.
"""

from penstock.coordination import nodes
from penstock.coordination.tree import Check, ConflictError, Create, Delete, Set, Tree


async def stand(tree: Tree, broker: int) -> Check | None:
    """Become controller if nobody is; the guard for every write, or None when another one is."""
    # The epoch first: whoever wins in between has raised it.
    epoch = await tree.get(nodes.CONTROLLER_EPOCH)
    held = await tree.get(nodes.CONTROLLER)
    if epoch is None or (held is not None and nodes.decode_controller(nodes.CONTROLLER, held) != broker):
        return None
    if held is not None and held.owner == tree.session:
        # Won before, but the answer was lost: nobody else raised the epoch while this session held the place.
        return Check(nodes.CONTROLLER_EPOCH, epoch.version)
    # An earlier process of this broker: it is gone, only its session is not over yet.
    stale = [] if held is None else [Delete(nodes.CONTROLLER, held.version)]
    try:
        await tree.multi(
            [
                *stale,
                Create(nodes.CONTROLLER, nodes.encode_controller(broker), ephemeral=True),
                Set(nodes.CONTROLLER_EPOCH, nodes.encode_controller(broker), epoch.version),
            ]
        )
    except ConflictError:
        return None
    return Check(nodes.CONTROLLER_EPOCH, epoch.version + 1)
