"""Brokers whose own settings differ: what one of them takes for sound may contradict what another inherits.

Nobody but the broker that is asked checks a change, so the others must get along with it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.sim.cluster_clients import create_topic
from tests.sim.cluster_story import BROKERS
from tests.sim.messages import TOPIC
from tests.sim.test_cluster_scenes import Scene

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import incremental_alter_configs

_TOPIC, _BROKER = 2, 4
_SET = 0
_LOW, _HIGH = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


def altering(kind: int, name: str, settings: dict[str, str]) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=setting, config_operation=_SET, value=value)
        for setting, value in settings.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


class OddScene(Scene):
    def alter_at(self, machine: SimBroker, setting: str, value: str) -> None:
        assert self.ask_at(machine, altering(_BROKER, "", {setting: value})) is ErrorCode.NONE

    def ask_at(self, machine: SimBroker, request: Any) -> ErrorCode:
        call = SimClient(machine.name, PORT).call(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        return ErrorCode(self.do(call).responses[0].error_code)


@pytest.fixture
def scene() -> Iterator[OddScene]:
    with SimLoop(0) as loop:
        yield OddScene(loop)


@pytest.mark.parametrize("odd", [0, 2])
def test_a_setting_for_all_ends_no_broker_that_is_set_otherwise(scene: OddScene, odd: int) -> None:
    scene.machines[odd]._settings[_LOW] = "100000"
    scene.begin()
    scene.alter_at(scene.machines[1], _HIGH, "50000")
    scene.let_pass(3)
    for machine in scene.machines:
        assert machine.broker is not None
        assert not machine.broker.broken.is_set()
    assert scene.produce(-1) is ErrorCode.NONE
    # And it starts with that, too; whoever is controller elects.
    scene.machines[odd].kill()
    scene.let_pass(3)
    scene.machines[odd].start()
    scene.loop.run_until(lambda: scene.machines[odd].ready)
    scene.until_whole()
    assert scene.produce(-1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("settled", "answer"),
    [
        (" ", ErrorCode.NONE),
        (" 0 , 1 ", ErrorCode.NONE),
        ("9" * 10, ErrorCode.NONE),
        ("9" * 5000, ErrorCode.INVALID_CONFIG),  # more digits than Python reads
        (",", ErrorCode.INVALID_CONFIG),
    ],
)
def test_no_wish_for_replicas_ends_the_controller(scene: OddScene, settled: str, answer: ErrorCode) -> None:
    scene.begin()
    wish = {"penstock.replicas.to": "5", "penstock.replicas.settled": settled}
    assert scene.ask_at(scene.machines[0], altering(_TOPIC, TOPIC, wish)) is answer
    scene.machines[1].kill()  # it looks at all topics
    scene.let_pass(5)
    scene.machines[1].start()
    scene.loop.run_until(lambda: scene.machines[1].ready)
    scene.let_pass(5)
    for machine in scene.machines:
        assert machine.broker is not None
        assert not machine.broker.broken.is_set()
    assert scene.produce(-1) is ErrorCode.NONE


def test_a_topic_that_contradicts_one_brokers_settings_keeps_no_other_topic_from_being_hosted(
    scene: OddScene,
) -> None:
    scene.machines[2]._settings[_HIGH] = "50000"
    scene.begin()
    scene.do(
        create_topic(scene.client("creator"), BROKERS, {"min.compaction.lag.ms": "100000"}, name="patient")
    )
    scene.do(create_topic(scene.client("another"), BROKERS, {}, name="zzz"))
    scene.let_pass(3)
    for machine in scene.machines:
        assert machine.broker is not None
        assert {b"patient", b"zzz"} <= machine.broker.table.by_name.keys()
        lags = machine.broker.table.by_name[b"patient"].config
        assert lags.min_compaction_lag_ms == 100_000 <= lags.max_compaction_lag_ms
