"""With more brokers than replicas an archive is believed, whichever broker it tells how far it is (SPEC A4)."""

import pytest
from tests.sim.cluster_clients import create_topic, send_until_acknowledged
from tests.sim.cluster_story import Story
from tests.sim.messages import PARTITIONS, TOPIC, batch_of

from penstock.core.archive_progress import ArchiveProgress
from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import incremental_alter_configs

SETTINGS = {
    "penstock.fill.empty.brokers": "false",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}
CONFIGS = {"penstock.archive.required": "true", "retention.ms": "1", "internal.segment.bytes": "200"}
RECORDS = 4


def tell(story: Story, broker: str, offsets: dict[int, int]) -> int:
    image = next(machine.broker.metadata.image for machine in story.machines if machine.broker)
    progress = str(ArchiveProgress(image.topics[TOPIC].id, offsets))
    config = incremental_alter_configs.AlterableConfig(
        name="penstock.archive.progress", config_operation=0, value=progress
    )
    one = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=TOPIC, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[one])
    asking = SimClient(broker, PORT).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    answer = story.loop.run_until_complete(story.loop.spawn("archive", asking))
    return int(answer.responses[0].error_code)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_each_leader_looks_for_itself_what_is_true_of_the_progress(asked: int) -> None:
    with SimLoop(asked) as loop:
        story = Story(loop, SETTINGS, synced=False)
        for machine in story.machines:
            machine.start()
        loop.run_until(lambda: all(machine.ready for machine in story.machines))
        loop.run_until_complete(loop.spawn("admin", create_topic(story.client("admin"), 1, CONFIGS)))
        story.let_pass(1)
        for index in range(PARTITIONS):
            for _ in range(RECORDS):
                sending = send_until_acknowledged(story.client("writer"), index, batch_of([b"x" * 100]))
                loop.run_until_complete(loop.spawn("writer", sending))

        def starts() -> list[int]:
            found = []
            for index, state in enumerate(story.states()):
                broker = story.machines[state.leader - 1].broker
                assert broker is not None
                found.append(broker.table.by_name[TOPIC.encode()].partitions[index].log.start_offset)
            return found

        story.let_pass(1)
        assert starts() == [0] * PARTITIONS
        assert tell(story, f"broker-{asked}", dict.fromkeys(range(PARTITIONS), 3)) == ErrorCode.NONE
        story.let_pass(1)
        assert starts() == [3] * PARTITIONS
        # What readers cannot have seen is refused by whoever leads it.
        leader = next(story.states()).leader
        assert tell(story, f"broker-{leader}", {0: 99}) == ErrorCode.INVALID_CONFIG
