"""The topic that a replay makes."""

from types import SimpleNamespace

import pytest

from penstock.spark.pipelines.replaying import target
from penstock.spark.pipelines.replaying.target import TargetOptions


def test_a_target_that_is_made_keeps_everything_whatever_the_broker_does_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: dict[str, str] = {}
    admin = SimpleNamespace(create=lambda _, *, partitions, configs: made.update(configs))
    monkeypatch.setattr(target, "Admin", lambda _: admin)
    target._create("b:1", TargetOptions("again"), "orders", 3, 3)
    assert (made["cleanup.policy"], made["retention.ms"], made["retention.bytes"]) == ("delete", "-1", "-1")
    # Unless that is what was asked for.
    target._create("b:1", TargetOptions("again", config={"cleanup.policy": "compact"}), "orders", 3, 3)
    assert made["cleanup.policy"] == "compact"
