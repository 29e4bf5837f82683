"""What a leader may change: the in-sync replicas of what it leads, decided here and nowhere else.

It names each member with the broker epoch under which that one fetched. A member that has begun anew since then, is
about to leave, or crashed and is not dealt with yet, is refused: a late fetch of a dead process cannot come back in.
So is a leader whose own log is in doubt: its request would give up others for what it may have lost.
Its request also ends a move: it is the sign that those that stay live, and have everything (`moves.finish`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.controller.election import Rules, with_isr
from penstock.controller.image_queries import world_of
from penstock.controller.moves import finish
from penstock.coordination.image import ClusterImage
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode

# For a leader that does not know a member's epoch; only itself and members it does not add.
ANY_EPOCH = -1


@dataclass(frozen=True, slots=True)
class WantedIsr:
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]  # (broker, its epoch)


def decide(image: ClusterImage, leader: int, wanted: WantedIsr, rules: Rules) -> PartitionState | ErrorCode:
    """The state to write, or why not."""
    topic = image.topics_by_id.get(wanted.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= wanted.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = topic.partitions[wanted.partition]
    if wanted.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # we are behind, and so probably replaced
    # The next look ends the epoch of one that is unsettled.
    if wanted.leader_epoch < state.leader_epoch or state.leader != leader or not _is_settled(image, leader):
        return ErrorCode.FENCED_LEADER_EPOCH
    # Before anything else that may refuse: so every other refusal says that no earlier try was carried out either.
    if wanted.partition_epoch != state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = tuple(broker for broker, _ in wanted.isr)
    if leader not in members or any(member not in state.replicas for member in members):
        return ErrorCode.INVALID_REQUEST
    for broker, epoch in wanted.isr:
        if broker not in state.isr and not _may_join(image, broker, epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    ordered = tuple(replica for replica in state.replicas if replica in members)
    return finish(with_isr(state, ordered, rules), world_of(image))


def _may_join(image: ClusterImage, broker: int, epoch: int) -> bool:
    registered = image.brokers.get(broker)
    if registered is None or registered.stopping or registered.epoch != epoch:
        return False
    return _is_settled(image, broker)


def _is_settled(image: ClusterImage, broker: int) -> bool:
    life = image.lives.get(broker)
    return life is None or life.settled
