"""What `penstock verify` advises is done to the letter, and what is left is looked at (O3).

Copies that differ are where the advice matters: the leader may be the one that lost records behind its back.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sim.cluster_story import replica_of
from tests.sim.messages import TOPIC, batch_of, produce_request
from tests.sim.test_cluster_lost_files import (
    FilesScene,
    end_is_gone,
    middle_is_gone,
)
from tests.sim.test_cluster_scenes import send
from tests.unit.storage.logs import read, read_everything

from penstock.cli.verify_advice import advice_on, tell
from penstock.client.admin.cluster_info import BrokerInfo, BrokerState, ClusterInfo, Replicas
from penstock.client.raw.model import EARLIEST
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.diagnosis.replica_verify import DEBUGGING_READER, Verdict, Verifier, _Copy
from penstock.records.batch import read_header
from penstock.storage.layout import LOG, segment_name
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchRequest, FetchTopic

ADVISED = "out of its data directory"
KEPT = Path("/kept")  # what was moved away
_BYTES = 2 << 20


class SimCopy(_Copy):
    """A broker of the simulation, asked as `penstock verify` asks one."""

    def __init__(self, scene: FilesScene, number: int, at: TopicPartition) -> None:
        self.broker, self.at = number, at
        self.view, self._has_no_more, self._asked = memoryview(b""), False, None
        self._scene, self._client = scene, SimClient(scene.machines[number - 1].name, PORT)

    def ask(self, position: int) -> None:
        self._position, self._has_no_more = position, False

    def take(self, end: int) -> None:
        partition = FetchPartition(
            partition=self.at.partition, fetch_offset=self._position, partition_max_bytes=_BYTES
        )
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
        return SimCopy(self._scene, broker.id, at)

    def _offset(self, at: TopicPartition, which: int) -> int:
        log = replica_of(self._scene.leader(at.partition), at.partition).log
        return log.start_offset if which == EARLIEST else log.end_offset


def looked(scene: FilesScene) -> ClusterInfo:
    """What `penstock status` shows."""
    live = {number for number, machine in enumerate(scene.machines, 1) if machine.ready}
    brokers = {
        number: BrokerInfo(number, "", PORT, None, None, state, False, 1, 0, None, None)
        for number in range(1, len(scene.machines) + 1)
        for state in [BrokerState.IN_SERVICE if number in live else BrokerState.DEAD]
    }
    partitions = {
        TopicPartition(TOPIC, index): Replicas(
            state.leader if state.leader in live else -1, tuple(brokers), tuple(state.isr)
        )
        for index, state in enumerate(scene.states())
    }
    return ClusterInfo("", brokers, partitions)


def verified(scene: FilesScene, partition: int = 0) -> Verdict:
    verifier = SimVerifier(scene)
    place = TopicPartition(TOPIC, partition)
    verdict = verifier.verify(looked(scene), place, lambda _: None, compacted=False)
    verifier.close()
    return verdict


def tell_of(scene: FilesScene, *verdicts: Verdict) -> None:
    now = looked(scene)
    tell([advice for verdict in verdicts if (advice := advice_on(verdict, now))])


def offsets_left(scene: FilesScene, partition: int = 0) -> set[int]:
    return {
        batch.base_offset
        for machine in scene.machines
        for batch in read_everything(replica_of(machine, partition).log)
    }


def nothing() -> None:
    """What happens meanwhile."""


def do_as_advised(
    scene: FilesScene,
    told: str,
    *,
    before_status: Callable[[], None] = nothing,
    before_stop: Callable[[], None] = nothing,
    waits: bool = True,
) -> int:
    """To the letter: each condition is looked at where the advice has it. Returns how many brokers were mended."""
    folders: dict[int, list[str]] = {}
    for number, folder in re.findall(r"^  broker (\d+): (\S+) \(whole on ", told, re.MULTILINE):
        folders.setdefault(int(number), []).append(folder)
    mended = 0
    for number, named in folders.items():
        machine = scene.machines[number - 1]
        before_status()
        found = looked(scene)
        if "Only while `penstock status` shows 0 under-replicated" in told and found.under_replicated:
            break
        before_stop()
        machine.stop()
        scene.let_pass(10)
        offline = {f"topics/{place.topic}/Partition-{place.partition}" for place in looked(scene).offline}
        if "If one of them is offline, start it again as it is" in told and offline & set(named):
            machine.start()
            break
        for folder in named:
            machine.files.make_dirs(KEPT / machine.name / folder)
            machine.files.remove_tree(KEPT / machine.name / folder)
            machine.files.rename(machine.data / folder, KEPT / machine.name / folder)
        machine.start()
        mended += 1
        if waits:
            wait_as_advised(scene, told)
    return mended


def wait_as_advised(scene: FilesScene, told: str) -> None:
    scene.let_pass(20)
    stuck = [place.partition for place in looked(scene).under_replicated]
    if stuck and "a damaged one leads" in told:
        leader = scene.leader(stuck[0])
        leader.stop()
        scene.let_pass(10)
        leader.start()
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
    tell_of(scene, verdict)
    do_as_advised(scene, capsys.readouterr().err)
    assert offsets_left(scene) == before


def bit_is_flipped(machine: SimBroker, partition: int = 0) -> None:
    """The last one of what it has."""
    directory = machine.data / "topics" / TOPIC / f"Partition-{partition}"
    file = machine.files.open(directory / segment_name(0, LOG))
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
    tell_of(scene, verdict)
    told = capsys.readouterr().err
    assert ADVISED in told
    assert do_as_advised(scene, told) == 1
    assert offsets_left(scene) == before
    assert verified(scene).is_identical


def written(scene: FilesScene) -> None:
    for _ in range(3):
        assert scene.produce(-1) is ErrorCode.NONE
    scene.let_pass(2)


def others_stop(scene: FilesScene, than: SimBroker) -> None:
    """And what is acknowledged from now on, that broker has alone."""
    for machine in scene.machines:
        if machine is not than:
            machine.stop()
            scene.let_pass(20)
    for _ in range(2):
        assert scene.produce(-1) is ErrorCode.NONE


@pytest.mark.parametrize("when", ["before_status", "before_stop"])
def test_what_was_acknowledged_by_the_damaged_one_alone_since_the_look_is_not_moved_away(
    scene: FilesScene, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    """Restarts of the rack, a slow network: what was whole when it was compared falls behind before the deed."""
    written(scene)
    damaged, others = scene.leader(), scene.followers()
    bit_is_flipped(damaged)
    tell_of(scene, verified(scene))
    told = capsys.readouterr().err
    assert ADVISED in told
    assert do_as_advised(scene, told, **{when: lambda: others_stop(scene, damaged)}) == 0  # type: ignore[arg-type]
    scene.let_pass(8)
    for machine in others:
        machine.start()
    scene.until_whole()
    scene.let_pass(2)
    assert offsets_left(scene) == {0, 1, 2, 3, 4}


def test_nothing_is_advised_where_others_fell_behind_while_copies_were_read(
    scene: FilesScene, capsys: pytest.CaptureFixture[str]
) -> None:
    written(scene)
    damaged = scene.leader()
    bit_is_flipped(damaged)
    verdict = verified(scene)
    others_stop(scene, damaged)
    tell_of(scene, verdict)
    told = capsys.readouterr().err
    assert ADVISED not in told
    assert "Move none of them away" in told
    assert do_as_advised(scene, told) == 0


@pytest.mark.parametrize("waits", [True, False])
def test_several_partitions_and_brokers_at_once(
    scene: FilesScene, capsys: pytest.CaptureFixture[str], waits: bool
) -> None:
    """Messages go on coming. Who does not wait is kept from the next broker by what `penstock status` shows.

    When the copy that leads is moved away, the other damaged one may lead, and nobody can fetch from that.
    """
    written(scene)
    for _ in range(2):
        request = produce_request(1, batch_of([b"x"]), acks=-1)
        answer = scene.do(SimClient(scene.leader(1).name, PORT).call(ApiKey.PRODUCE, request))
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    scene.let_pass(2)
    first, second = scene.machines[:2]
    bit_is_flipped(first, 0)
    bit_is_flipped(second, 0)
    bit_is_flipped(second, 1)
    tell_of(scene, *(verified(scene, partition) for partition in range(2)))
    told = capsys.readouterr().err
    assert told.count("(whole on ") == 3
    mended = do_as_advised(
        scene, told, waits=waits, before_stop=lambda: scene.do(send(scene.leader().name, 1, 500))
    )
    assert mended == (2 if waits else 1)
    wait_as_advised(scene, told)
    assert offsets_left(scene, 0) == set(range(3 + mended))
    assert offsets_left(scene, 1) == {0, 1}
    assert all(verified(scene, partition).is_identical for partition in range(2)) == waits


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


def test_a_file_of_another_broker_that_is_put_back_hides_nothing(
    scene: FilesScene, caplog: pytest.LogCaptureFixture
) -> None:
    """Against the advice: its segment began at 4, and had one record when it was copied."""
    scene.set_topic("internal.segment.bytes", "250")
    for _ in range(3):
        written(scene)
    machine = scene.followers()[0]
    log = replica_of(machine, 0).log
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    foreign = read(log, 4, 1)
    machine.stop()
    name = segment_name(4, LOG)
    machine.files.write_atomically(machine.data / "topics" / TOPIC / "Partition-0" / name, foreign)
    machine.start()
    scene.until_whole()
    assert f"were set aside: {name}.damaged" in caplog.text
    log = replica_of(machine, 0).log
    assert [read_header(read(log, offset, 1)).base_offset for offset in range(9)] == list(range(9))
    assert verified(scene).is_identical
