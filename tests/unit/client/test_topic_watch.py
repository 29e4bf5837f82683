"""Whether a topic is the one it was: without waiting, and not by the word of a broker that hears late."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.console import topic_watch
from penstock.client.console.topic_watch import TopicRemadeError, TopicWatch
from penstock.client.errors import ClientError


class Admin:
    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []

    def asked_description(self, _: str) -> "Future[Any]":
        self.asked.append(Future())
        return self.asked[-1]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "_LOOK_SECONDS", 0)


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def watch(admin: Admin) -> TopicWatch:
    return TopicWatch(admin, "orders", "old")  # type: ignore[arg-type]


def told(admin: Admin, watch: TopicWatch, topic_id: str) -> None:
    watch.look()
    admin.asked[-1].set_result(SimpleNamespace(topic_id=topic_id))
    watch.look()


def test_a_topic_that_was_made_again_is_told_when_two_answers_say_so(admin: Admin, watch: TopicWatch) -> None:
    told(admin, watch, "old")
    told(admin, watch, "new")
    told(admin, watch, "old")
    told(admin, watch, "new")
    with pytest.raises(TopicRemadeError, match="orders was deleted and made again"):
        told(admin, watch, "new")


def test_nothing_is_waited_for(admin: Admin, watch: TopicWatch) -> None:
    for _ in range(5):
        watch.look()
    assert len(admin.asked) == 1


def test_who_cannot_be_asked_says_nothing(admin: Admin, watch: TopicWatch) -> None:
    watch.look()
    admin.asked[-1].set_exception(ClientError("there is no topic orders"))
    watch.look()
    told(admin, watch, "new")
    assert len(admin.asked) == 2
