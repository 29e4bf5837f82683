"""Topics beside a source that several make at the same moment: brokers hear of them one after the other."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.client.admin.topics import TopicAdmin
from penstock.client.errors import ClientError
from penstock.client.retry import topics
from penstock.client.retry.replay_marks import ReplayMarks

MARKS = "orders.g.dlq.replayed"


class LateAdmin(TopicAdmin):
    """Somebody else has made the topic; this broker hears of it, and of its leader, a few questions later."""

    def __init__(self, codes: list[int], known_at_first: bool = False) -> None:
        self._codes = codes
        self._known = known_at_first
        self.grown = 0

    def _late(self) -> None:
        if self._codes:
            raise ClientError("not yet", self._codes.pop(0))

    def _description(self, name: str) -> Any:
        if not self._known:
            self._late()
        partition = SimpleNamespace(id=0, leader=None, replicas=(), isr=())
        return SimpleNamespace(partitions=[partition], topic_id="id", is_internal=False)

    def create(self, name: str, **_: Any) -> None:  # type: ignore[override]
        raise ClientError("it is there", KafkaError.TOPIC_ALREADY_EXISTS)

    def settings_of_topic(self, name: str) -> dict[str, str]:
        return {"max.message.bytes": "1000000", "retention.ms": "-1"}

    def own_configs(self, name: str) -> dict[str, str]:
        return {}

    def add_partitions(self, name: str, total: int) -> None:
        self.grown = total

    def earliest(self, name: str, partitions: Any) -> dict[int, int]:
        self._late()
        return dict.fromkeys(partitions, 0)

    latest = earliest


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_TOPIC_LOOK_SECONDS", 0)
    monkeypatch.setattr("penstock.client.admin.topics._RETRY_SECONDS", 0)


def test_who_comes_second_waits_until_the_topic_is_known() -> None:
    admin = LateAdmin([KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)
    topics.ensure(admin, MARKS, topics.Needs("orders.g.dlq", 1))  # type: ignore[arg-type]
    assert not admin.grown


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    ],
)
def test_marks_are_read_when_their_topic_has_a_leader(code: int) -> None:
    nothing: Any = lambda *_: iter(())  # noqa: E731
    admin = LateAdmin([code, code], known_at_first=True)
    assert ReplayMarks(admin, nothing, "orders.g.dlq", "orders").read() == {}  # type: ignore[arg-type]
