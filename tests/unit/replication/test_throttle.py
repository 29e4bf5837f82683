"""A rate in bytes per second for replicas that lag: whom it concerns, and how it is kept to."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig
from penstock.config.settings import LONG_MAX
from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.nodes import PartitionState
from penstock.replication.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS, LeaderThrottle, Throttle

RATE = "leader.replication.throttled.rate"
TOPIC_ID = b"t" * 16
PARTITION: Any = SimpleNamespace(topic_id=TOPIC_ID, index=0)
# 1 leads; 2 is in sync, 3 is not, 4 is being added.
STATE = PartitionState(replicas=(1, 2, 3, 4), isr=(1, 2), leader=1, adding=(4,))


def image(**configs: str) -> ClusterImage:
    made = ClusterImage()
    named = {name.replace("_", "."): value for name, value in configs.items()}
    made.topics_by_id[TOPIC_ID] = Topic("orders", TOPIC_ID, (STATE,), named, 0)
    return made


@pytest.mark.parametrize(
    ("named", "concerned"),
    [("", [4]), ("*", [3, 4]), (" * ", [3, 4]), ("0:1", [3, 4]), ("7:9, 0:1", [3, 4]), ("0:2,1:1", [4])],
)
def test_a_leader_throttles_who_is_added_or_named_and_not_in_sync(named: str, concerned: list[int]) -> None:
    throttle = Throttle(1, image(leader_replication_throttled_replicas=named), LEADER_REPLICAS)
    assert [replica for replica in (2, 3, 4) if throttle.concerns(PARTITION, replica)] == concerned


@pytest.mark.parametrize(
    ("node", "named", "concerned"), [(3, "0:3", True), (3, "0:1", False), (2, "*", False), (4, "", True)]
)
def test_a_follower_throttles_itself(node: int, named: str, concerned: bool) -> None:
    throttle = Throttle(node, image(follower_replication_throttled_replicas=named), FOLLOWER_REPLICAS)
    assert throttle.concerns(PARTITION, node) == concerned


def test_what_is_sent_is_paid_for_by_waiting() -> None:
    now = 100.0
    config = LiveConfig(BrokerConfig.resolve({RATE: "1000"}))
    throttle = LeaderThrottle(1, image(), config, lambda: now)

    def allowed(replica: int) -> int:
        return throttle.allowance(PARTITION, replica, 5000)

    assert allowed(4) == 1000  # a second's worth at once
    throttle.sent(PARTITION, 4, 3000)  # one batch was as large as that
    assert allowed(4) == 0
    assert allowed(2) == 5000  # in sync
    throttle.sent(PARTITION, 2, 10**9)  # costs those that lag nothing
    now += 1.9
    assert allowed(4) == 0
    now += 0.2
    assert allowed(4) == 1000
    config.put(BrokerConfig.resolve({RATE: str(LONG_MAX)}))
    assert allowed(4) == 5000
