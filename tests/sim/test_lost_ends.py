"""The only copy of a partition loses its end behind the broker's back: what others know of its offsets stays true."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.messages import (
    TOPIC,
    batch_of,
    create_request,
    fetch_request,
    idempotent,
    produce_request,
    records_of,
)

from penstock.core.error_codes import ErrorCode
from penstock.storage.layout import segment_name
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey


class Scene:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.machine = SimBroker(loop)
        self.start()
        self.call(ApiKey.CREATE_TOPICS, create_request({}))

    def start(self) -> None:
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)

    def call(self, api: ApiKey, request: Any) -> Any:
        client = SimClient(self.machine.name, PORT)
        return self.loop.run_until_complete(self.loop.spawn("client", client.call(api, request)))

    def produce(self, sequence: int, topic: str = TOPIC) -> Any:
        batch = batch_of([b"%d" % sequence], idempotent(0, sequence))
        request = produce_request(0, batch)
        request.topic_data[0].name = topic
        return self.call(ApiKey.PRODUCE, request).responses[0].partition_responses[0]

    def lose_three_of_four(self) -> None:
        path = self.machine.data / "topics" / TOPIC / "Partition-0" / segment_name(0, ".log")
        file = self.machine.files.open(path)
        file.truncate(file.size() // 4)
        file.close()

    def offsets_from(self, offset: int) -> list[int]:
        answer = self.call(ApiKey.FETCH, fetch_request(0, offset)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        return [record.offset for record in records_of(answer, offset)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with SimLoop(1) as loop:
        yield Scene(loop)


@pytest.mark.parametrize("clean", [True, False])
def test_offsets_that_are_lost_are_given_to_nobody(
    scene: Scene, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for sequence in range(4):
        assert scene.produce(sequence).base_offset == sequence
    scene.machine.stop()
    if not clean:
        scene.start()
        scene.machine.kill()
    scene.lose_three_of_four()
    scene.start()
    assert f"{TOPIC}-0 HAS LOST the offsets 1 to 3" in caplog.text
    # Its producer has written more than is left of it, and goes on.
    after = scene.produce(4)
    assert (after.error_code, after.base_offset) == (ErrorCode.NONE, 4)
    # Whoever committed, archived or holds a place below keeps it, and gets what is new.
    assert scene.offsets_from(0) == [0]
    for place in range(1, 5):
        assert scene.offsets_from(place) == [4]
    scene.machine.kill()
    scene.start()
    assert scene.produce(5).base_offset == 5
    assert scene.offsets_from(2)[0] == 4


def test_what_a_failed_sync_dropped_is_written_anew_under_another_leader_epoch(scene: Scene) -> None:
    """Acknowledged from the page cache, so it may go; but archives and readers can tell the two apart."""
    scene.call(ApiKey.CREATE_TOPICS, create_request({"penstock.ack.after": "written"}, name="written"))
    for sequence in range(4):
        assert scene.produce(sequence, "written").base_offset == sequence
    broker = scene.machine.broker
    assert broker is not None
    partition = broker.table.by_name[b"written"].partitions[0]
    epoch = partition.leader_epoch
    scene.machine.files.fail_next("sync", "*/written/Partition-0/*.log")
    broker._group_commit.request(partition)
    scene.loop.run_until(lambda: partition.log.failed)
    file = scene.machine.files.open(partition.log.active.paths()[0])
    file.truncate(file.size() // 2)
    file.close()
    scene.loop.run_until(lambda: not partition.log.failed and partition.is_leader)
    assert partition.log.end_offset == 2
    assert scene.produce(2, "written").base_offset == 2
    assert partition.log.epochs.epoch_at(1) == epoch < partition.log.epochs.epoch_at(2)
