"""What a replica tells the controller of its log."""

import pytest
from tests.unit.frontends.in_memory import Machine
from tests.unit.frontends.test_produce import BATCH

from penstock.coordination.metadata import NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.list_offsets import log_end_of


async def test_who_has_not_heard_of_the_leader_epoch_does_not_tell() -> None:
    """An earlier leader may still have it cut or begun anew, after it was elected for what it told."""
    async with Machine().broker() as asked:
        await asked.create("t")
        topic_id, epoch = asked.partition("t").topic_id, asked.partition("t").leader_epoch
        for heard in (-1, epoch):
            assert log_end_of(asked.broker.table, topic_id, 0, heard).offset == 0
        with pytest.raises(ApiError) as refused:
            log_end_of(asked.broker.table, topic_id, 0, epoch + 1)
        assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_the_end_of_a_deleted_topics_log_is_told_for_no_other_of_its_name() -> None:
    """Its broker would be elected for it, and cut what was acknowledged in the topic that was made again."""
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", bytearray(BATCH))
        broker = asked.broker
        async with broker.hosting._turn:  # it is busy: with other topics that went or came, or a slow disk
            await broker.metadata.delete_topic("t")
            state = PartitionState(replicas=(1,), isr=(1,), leader=1)
            (made,) = await broker.metadata.create_topics([NewTopic("t", [state], {})])
            own = broker.metadata.image.brokers[1]
            assert await broker.cluster._log_ends(own, [(made.id, 0)]) == {}
        await broker.hosting.reconcile()
        told = await broker.cluster._log_ends(own, [(made.id, 0)])
        assert [end.offset for end in told.values()] == [0]
