"""What `penstock verify` advises is done to the letter, and what is left is looked at (O3).

Copies that differ are where the advice matters: the leader may be the one that lost records behind its back.
"""

from collections.abc import Iterator

import pytest
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_lost_files import (
    FilesScene,
    directory_is_gone,
    end_is_gone,
    middle_is_gone,
)

from penstock.cli.verify_advice import advice_on, tell
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas
from penstock.client.raw.model import EARLIEST
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.diagnosis.replica_verify import DEBUGGING_READER, Verdict, Verifier, _Copy
from penstock.storage.layout import LOG, segment_name
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchRequest, FetchTopic

ADVISED = "out of its data directory"
_BYTES = 2 << 20


class SimCopy(_Copy):
    """A broker of the simulation, asked as `penstock verify` asks one."""

    def __init__(self, scene: FilesScene, machine: SimBroker, number: int) -> None:
        self.broker, self.at = number, TopicPartition(TOPIC, 0)
        self.view, self._has_no_more, self._asked = memoryview(b""), False, None
        self._scene, self._client = scene, SimClient(machine.name, PORT)

    def ask(self, position: int) -> None:
        self._position, self._has_no_more = position, False

    def take(self, end: int) -> None:
        partition = FetchPartition(partition=0, fetch_offset=self._position, partition_max_bytes=_BYTES)
        request = FetchRequest(
            replica_id=DEBUGGING_READER,
            max_bytes=_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        answer = self._scene.do(self._client.call(ApiKey.FETCH, request, 11))
        data = answer.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE
        self.view = memoryview(bytes(data.records or b""))
        self._has_no_more = not len(self.view) and data.high_watermark >= end


class SimVerifier(Verifier):
    def __init__(self, scene: FilesScene) -> None:
        super().__init__("nowhere:1")
        self._scene = scene

    def _copy(self, broker: BrokerInfo, at: TopicPartition) -> _Copy:
        return SimCopy(self._scene, self._scene.machines[broker.id - 1], broker.id)

    def _offset(self, at: TopicPartition, which: int) -> int:
        log = replica_of(self._scene.leader(), 0).log
        return log.start_offset if which == EARLIEST else log.end_offset


def verified(scene: FilesScene) -> Verdict:
    place, numbers = TopicPartition(TOPIC, 0), tuple(range(1, len(scene.machines) + 1))
    replicas = Replicas(scene.machines.index(scene.leader()) + 1, numbers, tuple(scene._state(0).isr))
    brokers = {
        number: BrokerInfo(number, "", PORT, None, None, BrokerState.IN_SERVICE, False, 1, 0, None, None)
        for number in numbers
    }
    verifier = SimVerifier(scene)
    verdict = verifier.verify(
        ClusterInfo("", brokers, {place: replicas}), place, lambda _: None, compacted=False
    )
    verifier.close()
    return verdict


def tell_of(verdict: Verdict) -> None:
    advice = advice_on(verdict)
    assert advice is not None
    tell([advice])


def offsets_left(scene: FilesScene) -> set[int]:
    return {offset for machine in scene.machines for offset in scene.kept(machine)[1]}


def do_as_advised(scene: FilesScene, told: str, verdict: Verdict) -> None:
    if ADVISED in told:
        for what in verdict.differences:
            machine = scene.machines[what.broker - 1]
            machine.stop()
            directory_is_gone(machine)
            scene.let_pass(10)
            machine.start()
            scene.until_whole()
            scene.let_pass(2)


@pytest.fixture
def scene() -> Iterator[FilesScene]:
    with SimLoop(2) as loop:
        scene = FilesScene(loop, synced=True)
        scene.begin()
        scene.set_topic("min.insync.replicas", "1")
        yield scene


@pytest.mark.parametrize("behind", [0, 1])
def test_the_only_whole_copy_is_not_thrown_away(
    scene: FilesScene, behind: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One replica stopped early, one later with everything; then the last one in sync lost its end, and leads."""
    last, followers = scene.leader(), scene.followers()
    for count, machine in ((2, followers[behind]), (2, followers[1 - behind])):
        for _ in range(count):
            assert scene.produce(-1) is ErrorCode.NONE
        scene.let_pass(1)
        machine.stop()
        scene.let_pass(20)
    last.stop()
    end_is_gone(last)
    last.start()
    scene.let_pass(8)
    for machine in followers:
        machine.start()
    scene.until_whole()
    assert scene.produce(-1) is ErrorCode.NONE
    scene.until_whole()
    scene.let_pass(2)
    before, verdict = offsets_left(scene), verified(scene)
    assert before >= {0, 1, 2, 3, 4}
    assert verdict.differences
    tell_of(verdict)
    do_as_advised(scene, capsys.readouterr().err, verdict)
    assert offsets_left(scene) == before


def bit_is_flipped(machine: SimBroker) -> None:
    """The last one of what it has."""
    file = machine.files.open(machine.data / "topics" / TOPIC / "Partition-0" / segment_name(0, LOG))
    last = file.size() - 1
    file.pwrite(bytes([file.pread(1, last)[0] ^ 1]), last)
    file.close()


def test_a_damaged_copy_is_fetched_again(scene: FilesScene, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(2)
    bit_is_flipped(scene.followers()[0])
    before, verdict = offsets_left(scene), verified(scene)
    assert [what.is_damaged for what in verdict.differences] == [True]
    assert len(verdict.whole) == len(scene.machines) - 1
    tell_of(verdict)
    told = capsys.readouterr().err
    assert ADVISED in told
    do_as_advised(scene, told, verdict)
    assert offsets_left(scene) == before
    assert verified(scene).is_identical


def test_a_damaged_data_dir_is_started_as_it_is(scene: FilesScene) -> None:
    """`penstock verify --data-dir` knows nothing of the others: here they lack what only the damaged one has."""
    scene.set_topic("internal.segment.bytes", "100")
    last, followers = scene.leader(), scene.followers()
    for _ in range(3):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(1)
    for machine in followers:
        machine.stop()
        scene.let_pass(20)
    for _ in range(3):
        assert scene.produce(-1) is ErrorCode.NONE
    last.stop()
    middle_is_gone(last)
    last.start()
    scene.let_pass(8)
    for machine in followers:
        machine.start()
    scene.until_whole()
    assert offsets_left(scene) == {0, 1, 2, 3, 4, 5}
