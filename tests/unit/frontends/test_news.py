"""A broker and those who registered with it: a listener that fails ends it, and nobody else misses the news."""

from typing import Any

import pytest
from tests.unit.frontends.group_requests import machine, prepared
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.frontends.test_configs import BROKER, SET, change

from penstock.coordination.image import ImageDelta
from penstock.coordination.nodes import PartitionState
from penstock.replication.partition import Partition


class DeafError(Exception):
    pass


async def test_a_listener_that_fails_ends_the_broker_but_not_the_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    def deaf(delta: ImageDelta) -> None:
        raise DeafError("what was that?")

    async with Machine().broker() as asked:
        asked.broker.image_news.register(deaf)
        asked.broker.image_news.register(lambda delta: heard.extend(topic.name for topic in delta.topics))
        await asked.create("t")
        assert "t" in heard
        assert b"t" in asked.services.table.by_name
        assert asked.broker.broken.is_set()
        assert "deaf" in asked.broker.broken_by
        assert "what was that?" in asked.broker.broken_by
    assert "so the broker stops" in caplog.text


async def test_a_role_that_one_cannot_take_is_heard_of_by_the_next() -> None:
    heard: list[str] = []

    def deaf(partition: Partition) -> None:
        raise DeafError

    async with Machine().broker() as asked:
        asked.broker.role_news.register(deaf)
        asked.broker.role_news.register(lambda partition: heard.append(partition.topic))
        await asked.create("t")
        assert heard == ["t"]
        assert asked.broker.broken.is_set()


def largest_record(asked: Asked) -> list[int]:
    return [shard.settings.record_bytes_max for shard in asked.services.coordinator.begun()]


async def test_groups_hear_of_settings_after_their_topic() -> None:
    """How large their records may be follows from what the topic inherits."""
    async with machine().broker() as asked:
        await prepared(asked)
        await change(asked, BROKER, "", ("message.max.bytes", SET, "5000"))
        assert set(largest_record(asked)) == {5000}
        assert not asked.broker.broken.is_set()


async def test_settings_that_change_while_logs_are_opened_hold_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody who hears of settings knows of partitions that are not there yet."""
    async with Machine().broker() as asked:
        hosting = asked.broker.hosting
        opened_by = hosting._open

        async def opened(*arguments: Any) -> dict[int, Partition]:
            found = await opened_by(*arguments)
            monkeypatch.undo()
            await change(asked, BROKER, "", ("message.max.bytes", SET, str(next(sizes))))
            return found

        sizes = iter((5000, 6000))
        monkeypatch.setattr(hosting, "_open", opened)
        await asked.create("t")
        assert asked.services.table.by_name[b"t"].config.max_message_bytes == 5000
        monkeypatch.setattr(hosting, "_open", opened)
        state = PartitionState(replicas=(1,), isr=(1,), leader=1)
        await asked.broker.metadata.create_partitions("t", [state])
        await hosting.reconcile()
        assert {asked.partition("t", at).log.settings.max_message_bytes for at in (0, 1)} == {6000}
