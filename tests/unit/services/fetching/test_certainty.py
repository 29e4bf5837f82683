"""Whoever asks whether this broker still leads is told, whatever becomes of the others who asked."""

import asyncio

from penstock.services.fetching.certainty import Certainty


def test_one_that_cannot_be_told_keeps_nobody_waiting() -> None:
    async def story() -> None:
        async def catch_up(_: float) -> bool:
            return True

        certainty = Certainty(1, None, catch_up)  # type: ignore[arg-type]
        running = asyncio.ensure_future(certainty.run())
        certainty.ask(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
        assert await certainty.is_current()
        assert await certainty.is_current(), "it goes on"
        running.cancel()

    asyncio.run(asyncio.wait_for(story(), 10))
