"""What the admin client asks, and in which order."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition, Uuid

from penstock.client.admin import groups as admin_groups
from penstock.client.admin.groups import GroupAdmin
from penstock.client.admin.topics import topic_id_text
from penstock.core.archive_progress import id_text


def ended(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


class Client:
    """A cluster whose coordinator has just moved; it may hide the topic of the groups."""

    def __init__(self, *topics: str, groups: tuple[str, ...] = ("g",)) -> None:
        self._topics = {name: SimpleNamespace(partitions={0: None}) for name in topics}
        self._groups = groups
        self._moving = 2
        self.loading = 0  # how often not all groups are known
        self.asked: list[str] = []

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics=self._topics)

    def list_consumer_groups(self, **_: Any) -> Any:
        self.asked.append("list")
        valid = [SimpleNamespace(group_id=name, state="STABLE", type="CLASSIC") for name in self._groups]
        self.loading -= 1
        errors = (
            [KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))] if self.loading >= 0 else []
        )
        return ended(SimpleNamespace(valid=valid if not errors else [], errors=errors))

    def describe_consumer_groups(self, names: list[str], **_: Any) -> Any:
        self.asked.append("describe")
        self._moving -= 1
        moved = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        return {name: ended(moved if self._moving > 0 else name) for name in names}

    def list_consumer_group_offsets(self, asked: list[Any], **_: Any) -> Any:
        self.asked.append("offsets")
        assert self._moving <= 0, "it would crash here"
        found = SimpleNamespace(topic_partitions=[TopicPartition("orders", 0, 7)])
        return {asked[0].group_id: ended(found)}


def admin(client: Client, monkeypatch: pytest.MonkeyPatch) -> GroupAdmin:
    monkeypatch.setattr(admin_groups, "_RETRY_SECONDS", 0.0)
    group_admin = GroupAdmin.__new__(GroupAdmin)
    group_admin._bootstrap, group_admin._client = "scripted", client  # type: ignore[assignment]
    return group_admin


def test_commits_are_asked_for_when_the_coordinator_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("orders", "__consumer_offsets")
    assert admin(client, monkeypatch).committed("g") == {("orders", 0): 7}
    assert client.asked == ["describe", "describe", "offsets"]


def test_groups_are_seen_where_their_topic_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert admin(Client("orders"), monkeypatch).committed("g") == {("orders", 0): 7}


def test_where_there_are_no_groups_no_coordinator_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("orders", groups=())
    assert admin(client, monkeypatch).committed("g") == {}
    assert admin(client, monkeypatch).describe_groups(["g"]) == []
    assert client.asked == ["list", "list"]


def test_topic_ids_are_written_as_kafka_writes_them() -> None:
    """`-` and `_` for the last two digits, so that what is shown can be used in `penstock.archive.progress`."""
    bits = 0x_FBEF_BEFB_EFBE_FFFF
    signed = bits - (1 << 64)
    text = topic_id_text(Uuid(signed, signed))
    assert text == id_text(bits.to_bytes(8, "big") * 2)
    assert {"-", "_"} <= set(text)


def test_groups_are_listed_when_all_of_them_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("orders")
    client.loading = 2
    assert [group.name for group in admin(client, monkeypatch).groups()] == ["g"]
    assert client.asked == ["list", "list", "list"]
