"""Places for what takes long: addresses have them in turn, nobody keeps one that it does not use."""

import asyncio

import pytest
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ClientGoneError
from penstock.core.limits import PORTIONED_WAITING_BYTES_MAX
from penstock.frontends.kafka import places as places_module
from penstock.frontends.kafka.places import BriefPlace, Place, Places
from penstock.services.coordinator.pending_reply import PendingReply

PLACES = 4


class Scene:
    """Requests that keep their places until they are told to end."""

    def __init__(self, places: int = PLACES) -> None:
        self.places = Places(places)
        self.running: list[
            str
        ] = []  # the names of those that have a place, in the order in which they got it
        self.left: set[str] = set()
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, address: str, *numbers: int) -> None:
        for number in numbers:
            name = f"{address}{number}"
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._work(name, address))
        await self.turns()

    async def _work(self, name: str, address: str) -> None:
        async with Place(self.places, address, 100, lambda: name in self.left):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.turns()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.turns()

    def failure(self, name: str) -> BaseException | None:
        return self._tasks[name].exception() if self._tasks[name].done() else None

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_one_address_leaves_a_place_for_others() -> None:
    scene = Scene()
    await scene.begin("a", *range(10))
    assert scene.running == ["a0", "a1", "a2"]
    await scene.begin("b", 0)
    assert "b0" in scene.running


async def test_addresses_that_wait_are_served_in_turn() -> None:
    scene = Scene()
    await scene.begin("a", *range(100))
    await scene.begin("b", 0, 1, 2)
    await scene.begin("c", 0, 1)
    assert scene.running == ["a0", "a1", "a2", "b0"]
    await scene.end("a0")
    assert scene.running[-1] == "c0", "one without a place goes before those that have some"
    await scene.end("a1")
    assert scene.running[-1] == "b1", "its turn came before that of the other"
    await scene.end("a2")
    assert scene.running[-1] == "a3"
    assert sorted(request[0] for request in scene.running) == ["a", "b", "b", "c"]


async def test_all_get_a_place_in_the_end_and_all_are_given_back() -> None:
    scene = Scene(1)
    for address in "abc":
        await scene.begin(address, *range(5))
    order = []
    while scene.running:
        (only,) = scene.running
        order.append(only)
        await scene.end(only)
    assert order == [f"{address}{number}" for number in range(5) for address in "abc"]
    await scene.begin("d", 0)
    assert scene.running == ["d0"]


@pytest.mark.parametrize("who", ["a0", "a1", "a2"])
async def test_one_that_is_cancelled_leaves_its_place_to_the_next(who: str) -> None:
    scene = Scene(1)
    await scene.begin("a", 0, 1, 2)
    await scene.cancel(who)
    rest = [name for name in ("a0", "a1", "a2") if name != who]
    for name in rest:
        assert scene.running == [name]
        await scene.end(name)


async def test_one_that_is_cancelled_as_it_gets_a_place_leaves_it_to_the_next() -> None:
    scene = Scene(1)
    await scene.begin("a", 0, 1, 2)
    scene._ends["a0"].set()
    while "a0" in scene.running:  # noqa: ASYNC110 - no turn more than that
        await asyncio.sleep(0)
    await scene.cancel("a1")
    assert scene.running == ["a2"]


async def test_those_whose_clients_left_end_when_their_turn_comes() -> None:
    scene = Scene(2)
    await scene.begin("a", *range(50))
    scene.left |= {f"a{number}" for number in range(1, 49)}
    await scene.end("a0")
    for _ in range(50):
        await scene.turns()
    assert scene.running == ["a49"]
    assert {type(scene.failure(name)) for name in scene.left} == {ClientGoneError}


async def test_one_whose_client_left_ends_at_its_next_turn() -> None:
    left = False
    async with Place(Places(1), "a", 100, lambda: left) as place:
        await place.give_way()
        left = True
        with pytest.raises(ClientGoneError):
            await place.give_way()


def later() -> PendingReply:
    def refused(code: ErrorCode) -> ErrorCode:
        return code

    return PendingReply(refused, lambda answer: answer)


@pytest.mark.parametrize("is_large", [False, True])
async def test_who_waits_for_something_else_gives_its_place_back_unless_it_is_large(is_large: bool) -> None:
    places, answer = Places(1), later()
    size_bytes = PORTIONED_WAITING_BYTES_MAX + 1 if is_large else 100

    async def waits() -> object:
        async with Place(places, "a", size_bytes, lambda: False) as place:
            return await place.wait(answer)

    async def other() -> None:
        async with Place(places, "b", 100, lambda: False):
            pass

    waiting, second = asyncio.create_task(waits()), asyncio.create_task(other())
    for _ in range(10):
        await asyncio.sleep(0)
    assert second.done() is not is_large
    answer.fill("there")
    assert await waiting == "there"
    await second
    assert places.waiting_bytes == 0
    await other()  # all places are free again


async def test_an_answer_that_is_there_is_not_waited_for() -> None:
    answer = later()
    answer.fill("there")
    async with Place(Places(1), "a", 100, lambda: False) as place:
        assert await place.wait(answer) == "there"


async def test_one_that_waits_for_long_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "WHOLE_PLACE_SECONDS_MAX", 0.001)
    places = Places(1)
    async with BriefPlace(places, "a", 100, lambda: False), asyncio.timeout(10):
        await places.acquire("b")
    places.release("b")
    async with BriefPlace(places, "a", 100, lambda: False):  # it was given back once
        waits = asyncio.ensure_future(places.acquire("b"))
        await until(lambda: places._waiting)
        assert not waits.done()
    await waits
