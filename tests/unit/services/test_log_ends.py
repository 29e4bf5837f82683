"""What a replica tells the controller of its log, in the words of OffsetForLeaderEpoch."""

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.controller.election import ReplicaEnd
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.list_offsets import log_end_of
from penstock.services.peers.broker_client import end_to_tell, told_end


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
@pytest.mark.parametrize("is_complete", [True, False])
def test_what_is_told_is_heard(epoch: int, is_complete: bool) -> None:
    end = ReplicaEnd(epoch, 42, is_complete)
    assert told_end(*end_to_tell(end)) == end


def test_for_a_controller_of_an_earlier_version_a_complete_log_has_more() -> None:
    empty = ReplicaEnd(-1, 0)
    assert end_to_tell(ReplicaEnd(9, 99, is_complete=False)) < end_to_tell(empty) == (-1, 0)


async def test_who_has_not_heard_of_the_leader_epoch_does_not_tell() -> None:
    """An earlier leader may still have it cut or begun anew, after it was elected for what it told."""
    async with Machine().broker() as asked:
        await asked.create("t")
        epoch = asked.partition("t").leader_epoch
        for heard in (-1, epoch):
            assert log_end_of(asked.broker.table, "t", 0, heard).offset == 0
        with pytest.raises(ApiError) as refused:
            log_end_of(asked.broker.table, "t", 0, epoch + 1)
        assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH
