"""Which copies of a partition `penstock verify` calls whole: only what was proven is."""

import pytest
from tests.unit.diagnosis.test_replica_compare import log_of

from penstock.cli.verify_advice import advice_on, tell
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas
from penstock.client.raw.model import EARLIEST
from penstock.client.topic_partition import TopicPartition
from penstock.diagnosis.replica_verify import Verdict, Verifier, _Copy
from penstock.records.batch import read_header

PLACE = TopicPartition("orders", 0)
END = 10
ADVISED = "out of its data directory"


def batches() -> dict[int, bytes]:
    """By their offsets, a record in each."""
    whole, found = memoryview(log_of(*[1] * END)), {}
    for offset in range(END):
        size_bytes = read_header(whole).size_bytes
        found[offset], whole = bytes(whole[:size_bytes]), whole[size_bytes:]
    return found


class KeptCopy(_Copy):
    def __init__(self, broker: int, kept: dict[int, bytes]) -> None:
        self.broker, self.at, self._kept = broker, PLACE, kept
        self.view, self._has_no_more, self._asked = memoryview(b""), False, None

    def ask(self, position: int) -> None:
        self._position, self._has_no_more = position, False

    def take(self, end: int) -> None:
        self.view = memoryview(b"".join(self._kept[at] for at in sorted(self._kept) if at >= self._position))
        self._has_no_more = not len(self.view)


class KeptVerifier(Verifier):
    def __init__(self, *logs: dict[int, bytes]) -> None:
        super().__init__("nowhere:1")
        self._logs = logs

    def _copy(self, broker: BrokerInfo, at: TopicPartition) -> _Copy:
        return KeptCopy(broker.id, self._logs[broker.id])

    def _offset(self, at: TopicPartition, which: int) -> int:
        return 0 if which == EARLIEST else END


def verified(*logs: dict[int, bytes], compacted: bool) -> Verdict:
    """The first one leads; all are in sync."""
    numbers = tuple(range(len(logs)))
    brokers = {
        number: BrokerInfo(number, "", 1, None, None, BrokerState.IN_SERVICE, False, 1, 0, None, None)
        for number in numbers
    }
    found = ClusterInfo("", brokers, {PLACE: Replicas(0, numbers, numbers)})
    return KeptVerifier(*logs).verify(found, PLACE, lambda _: None, compacted=compacted)


def tell_of(verdict: Verdict) -> None:
    in_sync = Replicas(0, (0, 1), (0, 1))
    advice = advice_on(verdict, ClusterInfo("", {}, {PLACE: in_sync}))
    assert advice is not None
    tell([advice])


def damaged_at(offset: int) -> dict[int, bytes]:
    log = batches()
    log[offset] = log[offset][:-1] + bytes([log[offset][-1] ^ 1])
    return log


def test_a_copy_of_a_compacted_topic_is_never_proven_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The leader lost files of its middle, which looks as if it had compacted; the other has one damaged batch."""
    leader = {offset: batch for offset, batch in batches().items() if not 3 <= offset < 6}
    verdict = verified(leader, damaged_at(8), compacted=True)
    assert [what.broker for what in verdict.differences] == [1]
    assert (verdict.compared, verdict.whole) == ((0,), ())
    tell_of(verdict)
    told = capsys.readouterr().err
    assert ADVISED not in told
    assert "orders-0" in told
    assert "keep the files of all" in told
    assert "safe place" in told


def test_one_of_any_other_topic_is(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = verified(batches(), damaged_at(8), compacted=False)
    assert (verdict.compared, verdict.whole) == ((0,), (0,))
    tell_of(verdict)
    assert ADVISED in capsys.readouterr().err
