"""Producer ids, handed out to brokers in blocks: a broker that dies wastes what is left of its block, and no more."""

from penstock.coordination import nodes
from penstock.coordination.tree import Change, ConflictError, Create, Set, Tree

PRODUCER_ID_BLOCK = 1000


async def take_producer_id_block(tree: Tree) -> tuple[range, Change]:
    """A block that nobody else was given or will be, and the change that took it."""
    path = nodes.PRODUCER_IDS
    while True:
        node = await tree.get(path)
        first = 0 if node is None else nodes.decode_producer_ids(path, node)
        following = nodes.encode_producer_ids(first + PRODUCER_ID_BLOCK)
        write = Create(path, following) if node is None else Set(path, following, node.version)
        try:
            change = await tree.multi([write])
        except ConflictError:
            continue  # Another broker took this block; every such loss is somebody's progress.
        return range(first, first + PRODUCER_ID_BLOCK), change
