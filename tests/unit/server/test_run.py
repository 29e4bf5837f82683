"""A broker that stops because it must says so to whoever runs it."""

import os
import signal
from pathlib import Path

import pytest

from penstock.cli.errors import explain
from penstock.config.broker import BrokerConfig
from penstock.server.broker import Broker
from penstock.server.run import BrokenError, run

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "penstock.console.port": "-1"}


def test_a_broker_whose_task_failed_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    def break_down(broker: Broker) -> None:
        broker._task_ended("upkeep", ValueError("no such segment"))

    config = BrokerConfig.resolve({**SETTINGS, "log.dirs": str(tmp_path)})
    with pytest.raises(BrokenError) as raised:
        run(config, break_down)
    assert explain(raised.value) == ("the broker stopped by itself: the task upkeep failed: no such segment")


def test_one_that_is_told_to_stop_does_not(tmp_path: Path) -> None:
    config = BrokerConfig.resolve({**SETTINGS, "log.dirs": str(tmp_path)})
    run(config, lambda broker: os.kill(os.getpid(), signal.SIGTERM))
