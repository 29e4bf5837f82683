"""A client of groups in a cluster of simulated brokers: it finds the coordinator, and finds it again."""

import asyncio
from contextlib import suppress
from typing import Any

from tests.sim.cluster_story import Story
from tests.sim.group_members import GROUP, NETWORK_TROUBLE, PARTITIONS, TOPIC

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, find_coordinator

# After these a member looks for its coordinator again.
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupClient:
    """Sends what concerns the group to its coordinator, and forgets who that is when something goes wrong.

    The same for transactional ids: they are coordinated, too (key type 1).
    """

    def __init__(self, story: Story, name: str, key: str = GROUP, key_type: int = 0) -> None:
        self._key = key
        self._key_type = key_type
        self._clients = {host: SimClient(host, PORT, timeout_s=5.0) for host in story.names}
        self._rng = story.loop.random(f"{name}/groups")
        self._names = story.names
        self.coordinator: str | None = None

    async def call(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        if api == ApiKey.FIND_COORDINATOR or self.coordinator is None:
            found = await self._find()
            if api == ApiKey.FIND_COORDINATOR:
                return found
        if self.coordinator is None:
            raise ConnectionRefusedError("nobody coordinates the group")
        try:
            answer = await self._clients[self.coordinator].call(api, request, version)
        except NETWORK_TROUBLE:
            self.coordinator = None
            raise
        if getattr(answer, "error_code", 0) in _ELSEWHERE:
            self.coordinator = None
        return answer

    async def _find(self) -> Any:
        self.coordinator = None
        request = find_coordinator.FindCoordinatorRequest(
            key_type=self._key_type, coordinator_keys=[self._key]
        )
        answer = await self._clients[self._rng.choice(self._names)].call(ApiKey.FIND_COORDINATOR, request)
        if answer.coordinators[0].error_code == ErrorCode.NONE:
            self.coordinator = answer.coordinators[0].host
        return answer

    async def create_topic(self, name: str = TOPIC) -> None:
        topic = create_topics.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
        while True:
            with suppress(*NETWORK_TROUBLE):
                request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
                broker = self._rng.choice(self._names)
                answer = await self._clients[broker].call(ApiKey.CREATE_TOPICS, request)
                if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            await asyncio.sleep(0.1)
