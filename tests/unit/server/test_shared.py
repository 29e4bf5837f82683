"""A page that many ask for: made once for all that wait, never out of date, never made all the time."""

import asyncio

from penstock.server.shared import Shared


class Maker:
    def __init__(self) -> None:
        self.begun = 0
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def make(self) -> int:
        self.begun += 1
        number = self.begun
        self.has_begun.set()
        await self.may_go_on.wait()
        return number


def test_those_who_come_while_one_is_made_share_the_next() -> None:
    async def story() -> None:
        maker = Maker()
        shared = Shared(maker.make)
        first = asyncio.ensure_future(shared.next())
        await maker.has_begun.wait()
        others = [asyncio.ensure_future(shared.next()) for _ in range(20)]
        await asyncio.sleep(0)
        maker.may_go_on.set()
        assert await first == 1
        assert set(await asyncio.gather(*others)) == {2}
        assert maker.begun == 2

    asyncio.run(story())


def test_who_asks_later_gets_a_new_one() -> None:
    async def story() -> None:
        maker = Maker()
        maker.may_go_on.set()
        shared = Shared(maker.make)
        assert [await shared.next() for _ in range(3)] == [1, 2, 3]

    asyncio.run(story())


def test_one_that_fails_fails_for_who_asked_and_not_for_the_next() -> None:
    async def story() -> None:
        answers = iter([ValueError("once"), "page"])

        async def make() -> str:
            answer = next(answers)
            if isinstance(answer, ValueError):
                raise answer
            return answer

        shared = Shared(make)
        try:
            await shared.next()
        except ValueError:
            assert await shared.next() == "page"
        else:
            raise AssertionError

    asyncio.run(story())
