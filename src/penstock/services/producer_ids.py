"""Producer ids, each given out once in the life of the cluster.

They are taken from the metadata in blocks. A block counts as used up from the moment it is taken, so a broker that
dies loses the rest of it and never gives an id twice.
"""

import asyncio
from typing import Protocol


class BlockSource(Protocol):
    async def next_producer_id_block(self) -> range: ...


class ProducerIds:
    def __init__(self, source: BlockSource) -> None:
        self._source = source
        self._left = iter(range(0))
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        async with self._turn:  # callers that find the block empty must not each take a new one
            found = next(self._left, None)
            if found is None:
                self._left = iter(await self._source.next_producer_id_block())
                found = next(self._left)
            return found
