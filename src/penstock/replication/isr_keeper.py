"""Who is in sync, kept true: leaders look, the controller decides.

A follower that has caught up is proposed as soon as its fetch shows it; one that lags is found by the clock. The
controller's answer is not what counts, its write is: it comes back through the metadata (`Leading.committed`). Until
then a proposal stands and is repeated; see `Leading.refused` for why it is not simply dropped.

Whoever is asked for without is given up, and a request is a sign that its leader lives and has everything (see
`controller.election`, `controller.moves`). So nobody is given up before all that may be committed is as durable here as
the topic wants it, nor copies that a move takes away before everybody that stays has shown that it lives.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from penstock.config.live import LiveConfig
from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError
from penstock.core.limits import ISR_PROPOSALS_MAX
from penstock.core.tasks import endless
from penstock.replication.leading import Leading, Proposal
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.wire.kafka.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
# The controller saw the partition's state and said no: this very request was not carried out and never will be.
_REFUSALS = frozenset(
    {
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

AskController = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrKeeper:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: int,
        image: ClusterImage,
        table: PartitionTable,
        config: LiveConfig,
        ask: AskController,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._node = node
        self._image = image
        self._table = table
        self._config = config
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._wanting: dict[Partition, None] = {}
        self._waiting: dict[
            Partition, None
        ] = {}  # those that want something, and have to be looked at again for it
        self.shrinks = 0
        self.expands = 0
        self._work = asyncio.Event()

    def fetched(self, partition: Partition, replica: int) -> None:
        """A follower's progress was noted: it may be one that has caught up."""
        leading = partition.leading
        if leading is not None and leading.may_join(
            replica, partition.high_watermark, partition.log.start_offset
        ):
            self.consider(partition)

    def changed(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Of a partition that is led here."""
        self.shrinks += not {*before} <= {*after}
        self.expands += not {*after} <= {*before}

    def consider(self, partition: Partition) -> None:
        self._wanting[partition] = None
        self._work.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(endless(self._look_for_laggards))
            tasks.create_task(endless(self._propose))

    async def _look_for_laggards(self) -> None:
        while True:
            await asyncio.sleep(self._config.now.replica_lag_time_max_ms / 2000)
            for partition in self._table.partitions():
                if partition.leading is not None and self._laggards(partition, partition.leading):
                    self.consider(partition)

    def _laggards(self, partition: Partition, leading: Leading) -> list[int]:
        lag_s_max = self._config.now.replica_lag_time_max_ms / 1000
        return leading.laggards(partition.log.end_offset, self._loop.time(), lag_s_max)

    # -- proposing -------------------------------------------------------------------------------------------

    async def _propose(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if self._waiting else None):
                    await self._work.wait()
            self._work.clear()
            wanting = [*(self._wanting | self._waiting)]
            self._wanting, self._waiting = {}, {}
            asked: list[Partition] = []
            for at in range(0, len(wanting), ISR_PROPOSALS_MAX):
                # Not made before the others were answered: much may have happened to these meanwhile.
                proposals = self._proposals(wanting[at : at + ISR_PROPOSALS_MAX])
                if not proposals:
                    continue
                asked += proposals
                try:
                    await self._send(proposals)
                except PenstockError as error:
                    logger.info("the controller does not answer: %s", error)
                    self._wanting.update(dict.fromkeys(wanting[at + ISR_PROPOSALS_MAX :]))
                    break
            again = [
                partition
                for partition in asked
                if partition.leading is not None and partition.leading.pending is not None
            ]
            self._wanting.update(dict.fromkeys(again))
            if self._wanting:
                await asyncio.sleep(_RETRY_SECONDS)
                self._work.set()

    def _proposals(self, wanting: list[Partition]) -> dict[Partition, Proposal]:
        return {
            partition: proposal
            for partition in wanting
            if partition.leading is not None
            and (proposal := self._proposal(partition, partition.leading)) is not None
        }

    def _proposal(self, partition: Partition, leading: Leading) -> Proposal | None:
        if leading.pending is not None:
            return self._again(partition, leading, leading.pending)
        leaving = self._laggards(partition, leading)
        committed = partition.high_watermark
        joining = [
            replica
            for replica in leading.progress
            if leading.may_join(replica, committed, partition.log.start_offset)
            and self._is_current(replica, leading)
        ]
        state = leading.state
        ends_move = leading.may_end_move and leading.heard_all and not leaving
        if ends_move:
            leaving = list(state.removing)
        elif leading.may_end_move:
            self._waiting[partition] = None
        members = [replica for replica in (*state.isr, *joining) if replica not in leaving]
        if tuple(members) == state.isr and not state.suspects and not ends_move:
            return None  # with suspects, the controller waits for a sign that somebody leads
        if (leaving or state.suspects or state.eligible) and not partition.vouches:
            self._waiting[partition] = None
            return None
        return leading.propose(members, self._broker_epoch())

    def _again(self, partition: Partition, leading: Leading, pending: Proposal) -> Proposal | None:
        """What was asked for and may have been lost; not what gives up others, of a log that has failed since."""
        state = leading.state
        gives_up = state.suspects or state.eligible or not {*state.isr} <= {*pending.members()}
        if gives_up and not partition.vouches:
            self._waiting[partition] = None
            return None
        return pending

    def _is_current(self, replica: int, leading: Leading) -> bool:
        """Whether what fetched is the process that is registered, and means to stay."""
        registered = self._image.brokers.get(replica)
        if registered is None or registered.stopping:
            return False
        return registered.epoch == leading.progress[replica].broker_epoch

    async def _send(self, proposals: dict[Partition, Proposal]) -> None:
        topics: dict[bytes, list[RequestPartitionData]] = {}
        for partition, proposal in proposals.items():
            proposal.unanswered += 1
            topics.setdefault(partition.topic_id, []).append(
                RequestPartitionData(
                    partition_index=partition.index,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._node,
            broker_epoch=self._broker_epoch(),
            topics=[
                RequestTopicData(topic_id=topic_id, partitions=wanted) for topic_id, wanted in topics.items()
            ],
        )
        response = await self._ask(request)
        by_place = {(proposal.topic_id, proposal.index): proposal for proposal in proposals}
        for topic in response.topics:
            for answer in topic.partitions:
                asked = by_place.get((topic.topic_id, answer.partition_index))
                if asked is not None and answer.error_code in _REFUSALS:
                    self._refused(asked, proposals[asked])

    def _refused(self, partition: Partition, proposal: Proposal) -> None:
        leading = partition.leading
        if leading is None or leading.pending is not proposal:
            return
        proposal.unanswered -= 1
        leading.refused(self._broker_epoch())
        if leading.state.suspects:
            # The controller waits for a word of ours, and nobody else may come.
            self._waiting[partition] = None
        partition.advance()
