"""DeleteTopics as Apache Kafka 4.3 answers it, and what becomes of those who wait on a deleted topic."""

from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record
from penstock.replication.limits import Reader
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState

NO_ID = bytes(16)
OTHER_ID = b"\x07" * 16


async def delete(asked: Asked, *names: str, version: int = 5, timeout_ms: int = 5000) -> list[Any]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    return list((await asked.ask(ApiKey.DELETE_TOPICS, request, version)).responses)


async def delete_states(asked: Asked, *topics: tuple[str | None, bytes]) -> list[Any]:
    states = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    request = DeleteTopicsRequest(topics=states, timeout_ms=5000)
    return list((await asked.ask(ApiKey.DELETE_TOPICS, request, 6)).responses)


@pytest.mark.parametrize("version", range(1, 6))
async def test_a_topic_is_gone_when_the_answer_comes(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        (result,) = await delete(asked, "t", version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert asked.services.image.topics == {}
        assert asked.services.table.all_topics() == []
        (result,) = await delete(asked, "t", version=version)
        message = "This server does not host this topic-partition." if version >= 5 else None
        assert (result.error_code, result.error_message) == (3, message)


async def test_a_topic_may_be_named_by_its_id_and_is_then_echoed_with_both() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        topic_id = asked.services.image.topics["t"].id
        (result,) = await delete_states(asked, (None, topic_id))
        assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, 0)
        (result,) = await delete_states(asked, (None, topic_id))
        assert (result.name, result.topic_id, result.error_code, result.error_message) == (
            None,
            topic_id,
            100,
            "This server does not host this topic ID.",
        )


async def test_what_is_named_wrongly_or_twice_is_not_deleted() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        topic_id = asked.services.image.topics["t"].id
        cases: list[tuple[list[tuple[str | None, bytes]], tuple[str | None, bytes, str]]] = [
            ([(None, NO_ID)], (None, NO_ID, "Neither topic name nor id were specified.")),
            ([("t", topic_id)], ("t", topic_id, "You may not specify both topic name and topic id.")),
            ([("t", NO_ID), ("t", NO_ID)], ("t", NO_ID, "Duplicate topic name.")),
            ([("x", NO_ID), ("x", NO_ID)], ("x", NO_ID, "Duplicate topic name.")),
            ([(None, topic_id)] * 2, (None, topic_id, "Duplicate topic id.")),
            (
                [(None, topic_id), ("t", NO_ID)],
                ("t", topic_id, "The provided topic name maps to an ID that was already supplied."),
            ),
        ]
        for topics, (name, echoed, message) in cases:
            (result,) = await delete_states(asked, *topics)
            assert (result.name, result.topic_id, result.error_message) == (name, echoed, message)
            assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "t" in asked.services.image.topics


async def test_one_refusal_does_not_keep_others_from_being_deleted() -> None:
    async with Machine().broker() as asked:
        await asked.create("a")
        await asked.create("b")
        results = await delete_states(asked, ("a", NO_ID), (None, OTHER_ID), ("b", NO_ID))
        assert {result.name: result.error_code for result in results} == {None: 100, "a": 0, "b": 0}
        assert asked.services.image.topics == {}


async def test_no_time_deletes_nothing() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        (result,) = await delete(asked, "t", timeout_ms=0)
        assert (result.name, result.error_code, result.error_message) == ("t", 7, None)
        assert "t" in asked.services.image.topics


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (5, 73)])
async def test_deletion_can_be_switched_off(version: int, code: int) -> None:
    async with Machine({"delete.topic.enable": "false"}).broker() as asked:
        await asked.create("t")
        (result,) = await delete(asked, "t", version=version)
        assert (result.name, result.error_code) == ("t", code)
        assert "t" in asked.services.image.topics


async def test_those_who_wait_on_a_deleted_topic_are_told() -> None:
    class Waiter:
        def __init__(self) -> None:
            self.told: list[object] = []

        def committed(self) -> None:
            self.told.append("committed")

        def failed(self, code: ErrorCode, message: str) -> None:
            self.told.append(code)

        def advanced(self, added_bytes: int) -> None:
            self.told.append("advanced")

    async with Machine().broker() as asked:
        await asked.create("t")
        partition = asked.partition("t")
        producer, reader = Waiter(), Waiter()
        batch = build_batch([Record(0, 1, None, b"v")], BatchOptions())
        offset = asked.append("t", batch, commit=False)
        partition.limits.wait_for_commit(offset, producer)
        partition.limits.wait(Reader.READ_UNCOMMITTED, reader)
        await delete(asked, "t")
        assert producer.told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert reader.told == ["advanced"]


async def test_a_topic_made_again_is_new_and_empty_also_after_a_restart() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
        old_id = asked.services.image.topics["t"].id
        asked.append("t", build_batch([Record(0, 1, None, b"v")], BatchOptions()))
        await delete(asked, "t")
        await asked.create("t")
        assert asked.services.image.topics["t"].id != old_id
        assert asked.partition("t").log.end_offset == 0
    async with machine.broker() as asked:
        assert asked.services.image.topics["t"].id != old_id
        assert asked.partition("t").log.end_offset == 0
