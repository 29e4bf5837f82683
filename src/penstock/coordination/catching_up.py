"""How to know that something is not there, and not only not there yet: the image follows the store at a distance."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.coordination import nodes
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.tree import CoordinationError

CatchUp = Callable[[float], Awaitable[bool]]


async def catch_up(metadata: MetadataStore, timeout_s: float) -> bool:
    """Wait until the image has all that was written before this was asked for; False: the store does not answer."""
    try:
        async with asyncio.timeout(timeout_s):
            number = (await metadata.tree.snapshot(nodes.CLUSTER)).number
            return await metadata.until(lambda: metadata.image.number >= number, None)
    except (CoordinationError, TimeoutError):
        return False
