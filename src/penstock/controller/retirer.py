"""The controller's part in retiring partitions: it asks their leaders, and writes down what they say.

The conversation is drawn in `wire.peers.retirement`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from penstock.config.live import LiveConfig
from penstock.config.topic import TopicConfig
from penstock.controller.image_queries import checks_of
from penstock.controller.retiring import (
    RETIRE_TO,
    configs_after,
    frozen,
    live_count,
    newly_led,
    removed,
    seen,
    to_close,
    to_freeze,
)
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.nodes import PartitionState
from penstock.coordination.tree import Check
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.wake import Wake
from penstock.wire.peers.retirement import Closed, Frozen, Question, RetirementAnswer, Seen

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
# Producers that look for a partition's leader ask every second or more often.
_FOUND_MS = 30_000

# (leader, topic id, its partitions with their leader epochs, question) -> the answers of those that have one.
AskLeader = Callable[[int, bytes, Mapping[int, int], Question], Awaitable[Mapping[int, RetirementAnswer]]]


class Retirer:
    def __init__(
        self,
        metadata: MetadataStore,
        config: LiveConfig,
        is_active: Callable[[], bool],
        clock: Clock,
        ask: AskLeader,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._is_active = is_active
        self._clock = clock
        self._ask = ask
        self._wake = Wake()
        # Topic -> (retired partition, leader epoch) -> when that leader was first seen.
        self._led_since: dict[bytes, dict[tuple[int, int], int]] = {}

    def wake(self) -> None:
        self._wake.now()

    async def run(self) -> None:
        """Until cancelled."""
        rest_s: float | None = None
        while True:
            await self._wake.rest(rest_s)
            rest_s = await self._round()

    async def _round(self) -> float | None:
        """Look at everything once; returns after how long to look again, if nothing happens before."""
        retiring = [
            topic.name for topic in self._metadata.image.stored_topics() if RETIRE_TO in topic.configs
        ]
        if not retiring:
            self._led_since.clear()
        if not self._is_active() or not retiring:
            return None
        complete = True
        for name in retiring:
            try:
                complete = await self._tend(name) and complete
            except PenstockError as error:
                logger.info("%s: its retired partitions could not be looked after: %s", name, error)
                complete = False
        return self._config.now.penstock_retire_check_interval_ms / 1000 if complete else _RETRY_SECONDS

    async def _tend(self, name: str) -> bool:
        """False: something waits that should not wait for long."""
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            return True
        wanted = to_freeze(topic)
        if wanted:
            lives = self._lives(topic)
            told = await self._ask_leaders(topic, wanted, Question.FREEZE)
            limits = {number: answer.limit for number, answer in told.items() if isinstance(answer, Frozen)}
            await self._write(topic, {n: self._frozen(topic, n, limits[n]) for n in limits}, lives)
            for number, limit in limits.items():
                logger.info("%s-%d: retired at offset %d", name, number, limit)
            return len(limits) == len(wanted)
        await self._look(topic)
        return True

    def _frozen(self, topic: Topic, number: int, limit: int) -> PartitionState:
        state = topic.partitions[number]
        return frozen(state, number, live_count(topic), limit, self._clock.now_ms())

    async def _look(self, topic: Topic) -> None:
        lives = self._lives(topic)
        grace_ms = TopicConfig.in_force(topic.configs, self._config.now).retire_grace_ms
        sightings = await self._sightings(topic)
        changed = seen(topic, sightings, grace_ms, self._found(topic, min(_FOUND_MS, grace_ms)))
        if changed:
            await self._write(topic, changed, lives)
            for number, state in changed.items():
                if state.hidden and not topic.partitions[number].hidden:
                    logger.info("%s-%d: nothing is left to read, so clients forget it", topic.name, number)
            return
        last = to_close(topic, sightings, grace_ms, self._clock.now_ms())
        if last is not None:
            await self._drop(topic, last)

    def _found(self, topic: Topic, patience_ms: int) -> list[int]:
        """Which of the newly led have been so for long enough."""
        now_ms = self._clock.now_ms()
        before = self._led_since.pop(topic.id, {})
        since = {broker: before.get(broker, now_ms) for broker in newly_led(topic).items()}
        if since:
            self._led_since[topic.id] = since
        return [number for (number, _), at_ms in since.items() if now_ms - at_ms >= patience_ms]

    async def _sightings(self, topic: Topic) -> dict[int, Seen]:
        retired = [number for number, state in enumerate(topic.partitions) if state.retirement is not None]
        told = await self._ask_leaders(topic, retired, Question.LOOK)
        return {number: answer for number, answer in told.items() if isinstance(answer, Seen)}

    async def _drop(self, topic: Topic, last: int) -> None:
        lives = self._lives(topic)
        answer = (await self._ask_leaders(topic, [last], Question.CLOSE)).get(last)
        if isinstance(answer, Closed):
            leader = topic.partitions[last].leader
            checks = [lives[leader]] if leader in lives else []
            configs = configs_after(topic, last)
            gone = {last: removed(topic, last, answer.end_offset)}
            await self._metadata.drop_partitions(topic, gone, configs, checks)
            logger.info("%s-%d: nobody needs it any more, so it is removed", topic.name, last)

    async def _ask_leaders(
        self, topic: Topic, numbers: Sequence[int], question: Question
    ) -> dict[int, RetirementAnswer]:
        by_leader: dict[int, dict[int, int]] = {}
        for number in numbers:
            state = topic.partitions[number]
            if state.leader in self._metadata.image.brokers:
                by_leader.setdefault(state.leader, {})[number] = state.leader_epoch
        told: dict[int, RetirementAnswer] = {}
        for leader, epochs in by_leader.items():
            try:
                told.update(await self._ask(leader, topic.id, epochs, question))
            except (OSError, TimeoutError, PenstockError) as error:
                logger.info("broker %d does not tell about %s: %s", leader, topic.name, error)
        return told

    def _lives(self, topic: Topic) -> dict[int, Check]:
        """Taken before its leaders are asked: a process that began anew since then has forgotten what it answered."""
        image = self._metadata.image
        leaders = {state.leader for state in topic.partitions}
        return {leader: check for leader in sorted(leaders) for check in checks_of(image, [leader])}

    async def _write(
        self, planned: Topic, states: Mapping[int, PartitionState], lives: Mapping[int, Check]
    ) -> None:
        """Where each partition still is what it was when its leader was asked."""

        def change(image: ClusterImage) -> tuple[dict[PartitionKey, PartitionState], list[Check]]:
            topic = image.topics_by_id.get(planned.id)
            changed = {
                (planned.id, number): state
                for number, state in states.items()
                if topic is not None
                and topic.partitions[number : number + 1] == (planned.partitions[number],)
            }
            leaders = sorted({state.leader for state in changed.values()})
            return changed, [lives[leader] for leader in leaders if leader in lives]

        if states:
            await self._metadata.rewrite_partitions(change)
