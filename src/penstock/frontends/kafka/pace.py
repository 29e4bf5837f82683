"""How a request that takes long goes on: it lets others have their turn, and waits for what is not there yet."""

import asyncio
from typing import Any

from penstock.services.coordinator.pending_reply import PendingReply


class Pace:
    async def give_way(self) -> None:
        """Let others go first; raises where nobody wants the answer any more."""
        await asyncio.sleep(0)

    def hold(self, size_bytes: int) -> None:
        """So much more is kept for it from now on."""

    async def wait(self, later: PendingReply) -> Any:
        if later.is_there:
            return later.rendered()
        answered = asyncio.get_running_loop().create_future()
        later.subscribe(lambda answer: None if answered.done() else answered.set_result(answer))
        return await answered
