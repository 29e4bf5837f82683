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
        self.asked_all: list[Future[str | None]] = []

    def asked_description(self, _: str) -> "Future[Any]":
        self.asked.append(Future())
        return self.asked[-1]

    def asked_id_by_most(self, _: str) -> "Future[str | None]":
        self.asked_all.append(Future())
        return self.asked_all[-1]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "_LOOK_SECONDS", 0)


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def watch(admin: Admin) -> TopicWatch:
    return TopicWatch(admin, "orders", "own")  # type: ignore[arg-type]


def told(admin: Admin, watch: TopicWatch, topic_id: str) -> None:
    """By whoever was asked."""
    watch.look()
    admin.asked[-1].set_result(SimpleNamespace(topic_id=topic_id))
    watch.look()


def told_by_most(admin: Admin, watch: TopicWatch, topic_id: str | None) -> None:
    watch.look()
    admin.asked_all[-1].set_result(topic_id)
    watch.look()


def test_a_topic_that_was_made_again_is_told_when_most_brokers_say_so(
    admin: Admin, watch: TopicWatch
) -> None:
    told(admin, watch, "own")
    assert not admin.asked_all
    told(admin, watch, "new")
    told_by_most(admin, watch, "own")  # most have not heard of it yet
    told(admin, watch, "new")
    told_by_most(admin, watch, None)  # some have heard
    told(admin, watch, "new")
    with pytest.raises(TopicRemadeError, match="orders was deleted and made again") as raised:
        told_by_most(admin, watch, "new")
    assert raised.value.topic_id == "new"


def test_a_broker_that_hears_late_of_the_readers_own_topic_is_not_believed(
    admin: Admin, watch: TopicWatch
) -> None:
    """However often it is asked: it tells the id of the topic that was there before."""
    for _ in range(5):
        told(admin, watch, "before")
        told_by_most(admin, watch, "own")


def test_nothing_is_waited_for(admin: Admin, watch: TopicWatch) -> None:
    for _ in range(5):
        watch.look()
    assert len(admin.asked) == 1
    admin.asked[-1].set_result(SimpleNamespace(topic_id="new"))
    for _ in range(5):
        watch.look()
    assert len(admin.asked_all) == 1


def test_who_cannot_be_asked_says_nothing(admin: Admin, watch: TopicWatch) -> None:
    watch.look()
    admin.asked[-1].set_exception(ClientError("there is no topic orders"))
    watch.look()
    told(admin, watch, "new")
    watch.look()
    admin.asked_all[-1].set_exception(ClientError("nobody answers"))
    watch.look()
    told(admin, watch, "new")
    assert (len(admin.asked), len(admin.asked_all)) == (3, 1)
