"""What a replica tells the controller of its log, in the words of OffsetForLeaderEpoch."""

import pytest

from penstock.controller.election import ReplicaEnd
from penstock.services.peers.broker_client import end_to_tell, told_end


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
@pytest.mark.parametrize("is_complete", [True, False])
def test_what_is_told_is_heard(epoch: int, is_complete: bool) -> None:
    end = ReplicaEnd(epoch, 42, is_complete)
    assert told_end(*end_to_tell(end)) == end


def test_for_a_controller_of_an_earlier_version_a_complete_log_has_more() -> None:
    empty = ReplicaEnd(-1, 0)
    assert end_to_tell(ReplicaEnd(9, 99, is_complete=False)) < end_to_tell(empty) == (-1, 0)
