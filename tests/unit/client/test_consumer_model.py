"""The consumer over a scripted broker: seeded stories, and planted bugs that they must find (SPEC A3)."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from tests.unit.client.consumer_checks import Violation
from tests.unit.client.consumer_story import Story
from tests.unit.client.scripted import Broker, install

from penstock.client.consuming.beginning import Beginning
from penstock.client.consuming.bodies import Bodies
from penstock.client.consuming.commits import Commits
from penstock.client.consuming.intake import Intake
from penstock.client.consuming.membership import Membership
from penstock.client.consuming.paused import PausedPartitions, _partitions
from penstock.client.consuming.reader import Reader
from penstock.client.consuming.starting import _ends, _found, begin_at
from penstock.client.consuming.steps import Steps
from penstock.client.consuming.unfinished import Unfinished, Where, place_of
from penstock.client.message import Message
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.flow import RetryFlow
from penstock.client.retry.ordered import OrderedRetryFlow

SEEDS = int(os.environ.get("PENSTOCK_SDK_SEEDS", "60"))
_PLANTED_SEEDS = (
    5 * SEEDS
)  # most are found by the first few; moments of Ctrl-C differ between versions of Python
Semantics = Literal["at-least-once", "at-most-once"]


def tell(seed: int, delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    install(broker, monkeypatch.setattr)
    Story(seed, broker, delivery).tell()


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_every_story_keeps_the_promises(delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        try:
            tell(seed, delivery, monkeypatch)
        except Violation as error:
            raise AssertionError(f"seed {seed}, {delivery}: {error}") from error


Plant = Callable[[pytest.MonkeyPatch], None]


def forget_messages_beside_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Intake.take_errors

    def careless(intake: Intake) -> list[Any]:
        errors = honest(intake)
        if errors:
            intake.inbox = []
        return errors

    monkeypatch.setattr(Intake, "take_errors", careless)


def forget_what_a_cut_short_poll_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "mend", lambda _: set())


def forget_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RetryFlow.wait_for_deliveries

    def careless(flow: RetryFlow) -> None:
        try:
            honest(flow)
        finally:
            flow._under_way = []

    monkeypatch.setattr(RetryFlow, "wait_for_deliveries", careless)


def believe_headers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def credulous(_: RetryFlow, message: Message) -> str:
        origin = retry_headers.origin(message.headers)
        return message.topic if origin is None else origin[0]

    monkeypatch.setattr(RetryFlow, "_source", credulous)
    monkeypatch.setattr(Broker, "partitions", lambda broker, topic: broker.make(topic, 1) or [0])


def leave_partitions_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(paused: PausedPartitions, places: list[Where]) -> None:
        paused._raw.pause(_partitions(place for place in places if place in paused.by_user))

    monkeypatch.setattr(PausedPartitions, "assigned", careless)


def keep_commits_of_partitions_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "forget", lambda *_: None)


def give_nothing_back_when_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Reader._read_again

    def careless(reader: Reader, places: list[Where]) -> None:
        before = dict(reader.ahead.returned)
        honest(reader, places)
        reader.ahead.returned = before

    monkeypatch.setattr(Reader, "_read_again", careless)


def hand_out_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages leave the unfinished, and then become a list or a table."""

    def careless(steps: Steps, size: int, made: Callable[[list[Message]], Any]) -> Any:
        unfinished = steps._reader.unfinished
        raws = unfinished.raws[unfinished.index : unfinished.index + size]
        unfinished.index += len(raws)
        steps.in_hand = len(raws)
        return made([Message(raw, steps._read, steps._flow) for raw in raws])

    monkeypatch.setattr(Steps, "next_batch_as", careless)


def hand_out_before_there_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by Ctrl-C between the two alone."""

    def careless(steps: Steps) -> Message | None:
        unfinished = steps._reader.unfinished
        if unfinished.index == len(unfinished.raws):
            return None
        raw = unfinished.raws[unfinished.index]
        unfinished.index += 1
        return Message(raw, steps._read, steps._flow)

    monkeypatch.setattr(Steps, "next_taken", careless)


def take_errors_of_callbacks_for_librdkafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Intake.poll

    def careless(intake: Intake, most: int, wait: float) -> None:
        try:
            honest(intake, most, wait)
        except KafkaException:
            intake.cut_short = False
            raise

    monkeypatch.setattr(Intake, "poll", careless)


def begin_retries_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.client.consuming.beginning.begin_at", lambda raw, _, new: begin_at(raw, "latest", new)
    )


def keep_where_it_began_to_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(membership: Membership) -> None:
        membership._beginning.untold.clear()

    monkeypatch.setattr(Membership, "_tell_begun", careless)
    monkeypatch.setattr(Membership, "note_begun", careless)


def begin_new_partitions_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(beginning: Beginning, partition: TopicPartition) -> bool:
        return partition.topic in beginning._retries

    monkeypatch.setattr(Beginning, "_from_the_first", careless)


def pass_messages_of_new_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of groups that began at an offset or at a time."""
    at_the_end = ("latest", timedelta(0))
    monkeypatch.setattr(Beginning, "_skips", property(lambda beginning: beginning._start in at_the_end))


def ask_for_the_end_behind_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes between the two is handed to nobody."""

    def careless(raw: Any, start: Any, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if not isinstance(start, datetime | timedelta):
            return begin_at(raw, start, partitions)
        since = start if isinstance(start, datetime) else datetime.now(UTC) - start
        begun = _found(raw, round(since.timestamp() * 1000), partitions)
        ends = _ends(raw, partitions)
        return [
            ends[place_of(partition)] if partition.offset == OFFSET_END else partition for partition in begun
        ]

    monkeypatch.setattr("penstock.client.consuming.beginning.begin_at", careless)


def forget_with_how_many_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found where growth and a restart meet."""
    monkeypatch.setattr("penstock.client.consuming.beginning._noted", lambda _: None)


def go_to_the_end_where_retention_overtook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.consuming.reader.RESET_POLICY", "latest")


def pass_what_is_to_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unfinished, "is_back", lambda *_: False)


def go_by_what_callbacks_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when Ctrl-C cut one short."""
    monkeypatch.setattr(Membership, "reconcile", lambda _: None)


def go_on_behind_a_dead_letter_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderedRetryFlow, "_behind", lambda *_: False)


def stop_at_a_partition_that_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit fails before the poll that would take it away."""
    monkeypatch.setattr("penstock.client.consuming.commits.UNKNOWN", set())


def act_on_bodies_before_it_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by Ctrl-C behind a body that failed."""

    def careless(bodies: Bodies) -> None:
        while bodies.notes:
            bodies._settle(*bodies.notes.popleft())
            bodies._outcome = None

    monkeypatch.setattr(Bodies, "settle", careless)


PLANTED: list[tuple[Plant, Semantics]] = [
    (forget_messages_beside_errors, "at-least-once"),
    (forget_messages_beside_errors, "at-most-once"),
    (forget_what_a_cut_short_poll_had, "at-least-once"),
    (forget_what_a_cut_short_poll_had, "at-most-once"),
    (forget_failures, "at-least-once"),
    (believe_headers_of_others, "at-least-once"),
    (leave_partitions_paused, "at-least-once"),
    (give_nothing_back_when_paused, "at-most-once"),
    (keep_commits_of_partitions_that_left, "at-least-once"),
    (hand_out_before_it_is_made, "at-least-once"),
    (hand_out_before_there_is_a_message, "at-least-once"),
    (take_errors_of_callbacks_for_librdkafkas, "at-least-once"),
    (begin_retries_at_the_end, "at-least-once"),
    (keep_where_it_began_to_oneself, "at-least-once"),
    (keep_where_it_began_to_oneself, "at-most-once"),
    (begin_new_partitions_at_the_end, "at-least-once"),
    (pass_messages_of_new_partitions, "at-least-once"),
    (pass_messages_of_new_partitions, "at-most-once"),
    (ask_for_the_end_behind_the_time, "at-least-once"),
    (ask_for_the_end_behind_the_time, "at-most-once"),
    (forget_with_how_many_it_began, "at-least-once"),
    (go_to_the_end_where_retention_overtook, "at-least-once"),
    (pass_what_is_to_be_read_again, "at-least-once"),
    (go_by_what_callbacks_noted, "at-least-once"),
    (go_by_what_callbacks_noted, "at-most-once"),
    (go_on_behind_a_dead_letter_under_way, "at-least-once"),
    (stop_at_a_partition_that_is_deleted, "at-least-once"),
    (stop_at_a_partition_that_is_deleted, "at-most-once"),
    (act_on_bodies_before_it_is_sure, "at-least-once"),
]


@pytest.mark.parametrize(("plant", "delivery"), PLANTED)
def test_a_planted_bug_is_found(plant: Plant, delivery: Semantics, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(_PLANTED_SEEDS):
        try:
            tell(seed, delivery, monkeypatch)
        except Violation:
            print(f"found at seed {seed}")
            return
    pytest.fail("no story found it")
