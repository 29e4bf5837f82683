"""A broker as one of many: it follows the metadata, plays its replicas' roles, and is controller when it is its turn.

Everything here runs on one node as well, where there is nobody else: the same code elects the only broker there is.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from penstock.config.live import LiveConfig
from penstock.controller.controller import Controller
from penstock.controller.log_end_election import LogEnds
from penstock.coordination.ids import id_text
from penstock.coordination.metadata import MetadataStore, PartitionKey
from penstock.coordination.registration import BrokerRegistration
from penstock.core.errors import ApiError
from penstock.core.jobs import Jobs
from penstock.core.tasks import endless
from penstock.core.turns import Turn
from penstock.records.relay import RelayKind
from penstock.replication.fetchers import Fetchers
from penstock.replication.following import Follower
from penstock.replication.group_commit import GroupCommit
from penstock.replication.introduction import BrokerAuthenticator, Identity
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.replication.throttle import LeaderThrottle
from penstock.server.failure_detector import FailureDetector
from penstock.server.membership import Connect, Membership
from penstock.server.seams import Seams
from penstock.services.fetching.follower import FollowerReads
from penstock.services.hosting.roles import Roles
from penstock.services.list_offsets import log_end_of
from penstock.services.peers.broker_client import BrokerClient
from penstock.services.peers.controller_client import ControllerClient
from penstock.services.peers.peers import Peers
from penstock.services.relay.inbox import RelayInbox
from penstock.services.relay.relays import MakeSource, Relays
from penstock.services.relay.retired import RetiredSource
from penstock.services.retiring import RetiringService
from penstock.wire.peers.log_ends import WantedEnd
from penstock.wire.peers.retirement import Question, RetirementAnswer

logger = logging.getLogger(__name__)

# How long a stopping broker waits for others to take over.
_HAND_OVER_SECONDS = 10.0


class ClusterMember:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seams: Seams,
        metadata: MetadataStore,
        table: PartitionTable,
        group_commit: GroupCommit,
        jobs: Jobs,
        config: LiveConfig,
        connect: Connect | None,
        role_changed: Callable[[Partition], None],
    ) -> None:
        self._metadata = metadata
        self._table = table
        self._loop = loop
        self._seams = seams
        self._node = node = config.now.node_id
        self._data_path = Path(config.now.log_dirs[0])
        image = metadata.image
        self._identity = Identity(node, image, self._broker_epoch)
        self._peers = Peers(self._identity, image)
        listener = config.now.inter_broker_listener_name
        self.authenticator = BrokerAuthenticator(node, image, seams.rng, listener)
        self.others = BrokerClient(self._peers)
        self.ask_peer = self._peers.ask
        self.controller_client = ControllerClient(self._peers, image)
        self.controller = Controller(
            metadata, node, config, self._log_ends, self._disk_space, seams.clock, self._ask_retiring
        )
        self.controller_client.controller = self.controller
        self.membership = Membership(metadata, self.controller, connect)
        self.failure_detector = FailureDetector(node, metadata)
        ask = self.controller_client.alter_partition
        self.keeper = IsrKeeper(loop, node, image, table, config, ask, self._broker_epoch)
        throttle = LeaderThrottle(node, image, config, loop.time)
        self.follower_reads = FollowerReads(image, self.keeper, throttle, loop.time)
        follower = Follower(jobs, seams.clock, group_commit)
        self.fetchers = Fetchers(loop, node, image, config, follower, self._identity)
        self.roles = Roles(
            loop,
            seams.clock,
            node,
            image,
            self.fetchers,
            self.keeper,
            self._may_play,
            self._may_lead,
            role_changed,
            tells_at_once=bool(config.now.replica_selector_class),
        )
        self.retiring = RetiringService(seams.clock, table)
        inbox = RelayInbox(seams.clock, table, image)
        sources: dict[int, MakeSource] = {RelayKind.RETIRED: partial(RetiredSource.of, loop, seams.executor)}
        self.relays = Relays(node, image, table, self._peers, inbox, sources)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(endless(self.membership.run), name="membership")
            tasks.create_task(endless(self.membership.stay), name="registration")
            tasks.create_task(endless(self.failure_detector.run), name="failure_detector")
            tasks.create_task(endless(self.controller.run), name="controller")
            tasks.create_task(endless(self.keeper.run), name="in-sync replicas")
            tasks.create_task(endless(self.fetchers.run), name="fetchers")
            tasks.create_task(endless(self.relays.run), name="relays")

    async def hand_over(self) -> None:
        """Before a stop: others lead, where there are others."""
        if len(self._metadata.image.brokers) > 1:
            await self.membership.leave(self._leads_nothing_others_could, _HAND_OVER_SECONDS)

    async def close(self) -> None:
        await self.fetchers.close()
        self._peers.close()

    # -- what its parts ask of each other -------------------------------------------------------------------

    def _may_play(self) -> bool:
        return self.membership.is_registered

    def _may_lead(self) -> bool:
        return self.membership.is_settled

    def _broker_epoch(self) -> int:
        return self.membership.epoch

    def _leads_nothing_others_could(self) -> bool:
        return not any(
            state.leader == self._node and len(state.isr) > 1
            for topic in self._metadata.image.stored_topics()
            for state in topic.partitions
        )

    async def _log_ends(self, broker: BrokerRegistration, wanted: Sequence[PartitionKey]) -> LogEnds:
        topics = self._metadata.image.topics_by_id
        asked = [
            WantedEnd(topic_id, index, topics[topic_id].partitions[index].leader_epoch)
            for topic_id, index in wanted
            if topic_id in topics and index < len(topics[topic_id].partitions)
        ]
        if broker.id != self._node:
            return await self.others.ask_log_ends(broker.id, asked)
        told = {}
        for topic_id, index, epoch in asked:
            try:
                told[topic_id, index] = log_end_of(self._table, topic_id, index, epoch)
            except ApiError as error:
                logger.info("%s-%d cannot tell how long it is: %s", topics[topic_id].name, index, error)
        return told

    async def _ask_retiring(
        self, leader: int, topic_id: bytes, epochs: Mapping[int, int], question: Question
    ) -> Mapping[int, RetirementAnswer]:
        if leader != self._node:
            return await self.others.ask_retiring(leader, topic_id, epochs, question)
        told, turn = {}, Turn(self._loop.time)
        for index, epoch in epochs.items():
            await turn.give_way()
            try:
                told[index] = self.retiring.answer(topic_id, index, epoch, question)
            except ApiError as error:
                logger.info("%s-%d cannot tell: %s", id_text(topic_id), index, error)
        return told

    async def _disk_space(self, broker: BrokerRegistration) -> tuple[int, int]:
        if broker.id != self._node:
            return await self.others.ask_disk(broker.id)
        files, path = self._seams.files, self._data_path
        return await self._loop.run_in_executor(
            self._seams.executor, lambda: (files.total_bytes(path), files.free_bytes(path))
        )
