"""With more brokers than replicas an archive is believed, whichever broker it tells how far it is (SPEC A4).

And a mistyped value is not: whoever is told asks the leaders first, and a leader that finds one stored all the same, by
an earlier version, takes nothing of it for true.
"""

import os

import pytest
from tests.sim.cluster_clients import Violation, create_topic, send_until_acknowledged
from tests.sim.cluster_planted import goes_wrong
from tests.sim.cluster_story import Story, replica_of
from tests.sim.messages import PARTITIONS, TOPIC, batch_of

from penstock.coordination.tree import ConnectionLostError
from penstock.core.archive_progress import ArchiveProgress
from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.server.metrics import BrokerCollector
from penstock.services import configs
from penstock.services.maintenance import archive_progress as archive
from penstock.storage.log import Log
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import incremental_alter_configs

SEEDS = int(os.environ.get("PENSTOCK_SIM_SEEDS", "150")) // 30
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
SETTINGS = {
    "penstock.fill.empty.brokers": "false",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}
CONFIGS = {"penstock.archive.required": "true", "retention.ms": "1", "internal.segment.bytes": "200"}
RECORDS = 4
EVERY = range(PARTITIONS)


class LeadersStory(Story):
    """Each partition has one replica, on one of three brokers."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop, SETTINGS, synced=False)
        self.archived = [0] * PARTITIONS

    def begin(self) -> None:
        for machine in self.machines:
            machine.start()
        self.until_led()
        creating = create_topic(self.client("admin"), 1, CONFIGS)
        self.loop.run_until_complete(self.loop.spawn("admin", creating))
        self.until_led()

    def until_led(self) -> None:
        self.loop.run_until(lambda: all(machine.ready for machine in self.machines))
        self.let_pass(1)

    def write(self, index: int, count: int) -> None:
        for _ in range(count):
            sending = send_until_acknowledged(self.client("writer"), index, batch_of([b"x" * 100]))
            self.loop.run_until_complete(self.loop.spawn("writer", sending))

    def leading(self, index: int) -> Partition:
        return replica_of(self.machines[list(self.states())[index].leader - 1], index)

    def starts(self) -> list[int]:
        return [self.leading(index).log.start_offset for index in EVERY]

    def told(self, offsets: dict[int, int]) -> str:
        image = next(machine.broker.metadata.image for machine in self.machines if machine.broker)
        return str(ArchiveProgress(image.topics[TOPIC].id, offsets))

    def tell_archived(self, broker: str, offsets: dict[int, int]) -> int:
        config = incremental_alter_configs.AlterableConfig(
            name="penstock.archive.progress", config_operation=0, value=self.told(offsets)
        )
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=2, resource_name=TOPIC, configs=[config]
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        asking = SimClient(broker, PORT).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        answer = self.loop.run_until_complete(self.loop.spawn("archive", asking))
        return int(answer.responses[0].error_code)

    def store_unasked(self, offsets: dict[int, int]) -> None:
        """As an earlier version did, of whatever it did not lead itself."""
        broker = self.rng.choice(self.machines).broker
        assert broker is not None
        progress = {"penstock.archive.progress": self.told(offsets)}
        storing = broker.metadata.alter_topic_configs(TOPIC, lambda current: {**current, **progress})
        self.loop.run_until_complete(self.loop.spawn("earlier", storing))

    # -- the story -------------------------------------------------------------------------------------------

    def something(self) -> None:
        index, broker = self.rng.randrange(PARTITIONS), self.rng.choice(self.names)
        end = self.leading(index).log.end_offset
        match self.rng.choice(["write", "archive", "mistype", "mistype", "unasked", "kill"]):
            case "write":
                self.write(index, self.rng.randint(1, 3))
            case "archive":
                self.archived[index] = self.rng.randint(self.archived[index], end)
                if self.tell_archived(broker, dict(enumerate(self.archived))) != ErrorCode.NONE:
                    raise Violation(f"an archive at {self.archived} is not believed by {broker}")
            case "mistype":
                wrong = dict(enumerate(self.archived)) | {index: end + self.rng.randint(1, 3)}
                if self.tell_archived(broker, wrong) != ErrorCode.INVALID_CONFIG:
                    raise Violation(f"{broker} takes {wrong}, and {index} ends at {end}")
            case "unasked":
                self.store_unasked({index: end + self.rng.randint(1, 3)})
                self.let_pass(0.5)
                self.write(index, 4)  # now the log has those offsets, too
            case "kill":
                machine = self.rng.choice(self.machines)
                machine.kill()
                machine.start()
                self.until_led()
        self.let_pass(0.5)
        self.check_kept()

    def check_kept(self) -> None:
        for index, start in enumerate(self.starts()):
            if start > self.archived[index]:
                raise Violation(f"{index}: retention took up to {start}, archived is {self.archived[index]}")


def run_story(seed: int) -> None:
    with SimLoop(seed) as loop:
        story = LeadersStory(loop)
        story.begin()
        for index in EVERY:
            story.write(index, RECORDS)
        for _ in range(story.rng.randint(4, 8)):
            story.something()
        # Whatever was said meanwhile: an archive that tells where it really is is believed again.
        story.archived = [story.leading(index).log.end_offset for index in EVERY]
        everything = dict(enumerate(story.archived))
        assert story.tell_archived(story.rng.choice(story.names), everything) == ErrorCode.NONE
        loop.run_until(lambda: story.starts() == story.archived)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_retention_takes_nothing_for_a_mistyped_value(seed: int) -> None:
    run_story(seed)


def test_the_checkers_find_a_broker_that_asks_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plenty(*_: object) -> dict[int, int]:
        return dict.fromkeys(EVERY, 10**9)

    monkeypatch.setattr(configs, "ends_elsewhere", plenty)
    assert any(goes_wrong(run_story, seed) for seed in range(5))


def test_the_checkers_find_a_leader_that_takes_its_end_for_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(log: Log, offset: int, epoch: int | None) -> int:
        return min(offset, log.end_offset)

    monkeypatch.setattr(archive, "vouched", believing)
    assert any(goes_wrong(run_story, seed) for seed in range(5))


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_an_archive_is_believed_whichever_broker_it_tells(asked: int) -> None:
    with SimLoop(asked) as loop:
        story = LeadersStory(loop)
        story.begin()
        for index in EVERY:
            story.write(index, RECORDS)
        story.let_pass(1)
        assert story.starts() == [0] * PARTITIONS
        assert story.tell_archived(f"broker-{asked}", dict.fromkeys(EVERY, 3)) == ErrorCode.NONE
        story.let_pass(1)
        assert story.starts() == [3] * PARTITIONS
        # What readers cannot have seen is refused by everybody.
        assert story.tell_archived(f"broker-{asked}", {0: 99}) == ErrorCode.INVALID_CONFIG


def test_what_cannot_be_checked_now_may_be_told_again() -> None:
    with SimLoop(1) as loop:
        story = LeadersStory(loop)
        story.begin()
        for index in EVERY:
            story.write(index, RECORDS)
        leader = story.machines[next(story.states()).leader - 1]
        other = next(machine for machine in story.machines if machine is not leader)
        leader.kill()
        assert story.tell_archived(other.name, {0: 3}) == ErrorCode.LEADER_NOT_AVAILABLE
        leader.start()
        story.until_led()
        assert story.tell_archived(other.name, {0: 3}) == ErrorCode.NONE


def test_the_lag_is_told_by_the_leader_and_is_of_what_it_believes() -> None:
    with SimLoop(1) as loop:
        story = LeadersStory(loop)
        story.begin()
        story.write(0, RECORDS)
        story.tell_archived("broker-1", {0: 1})
        story.let_pass(1)

        def lags() -> list[float]:
            families = [
                family for machine in story.machines for family in BrokerCollector(machine.broker).collect()
            ]  # type: ignore[arg-type]
            samples = [sample for family in families for sample in family.samples]
            return [
                sample.value
                for sample in samples
                if sample.name == "penstock_archive_lag_records" and sample.labels["partition"] == "0"
            ]

        assert lags() == [RECORDS - 1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archive.ArchiveProgressStore, "lower", _unable)
            story.store_unasked({0: 99})
            story.let_pass(1)
            assert lags() == [RECORDS - 1]


async def _unable(*_: object) -> None:
    raise ConnectionLostError("no metadata now")
