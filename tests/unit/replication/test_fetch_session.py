"""Both sides of a follower's fetch session, connected: the leader always knows exactly what is asked for."""

import random
from collections.abc import Iterator

import pytest

from penstock.core.errors import ApiError
from penstock.frontends.kafka.fetch_sessions import FetchSession, FetchSessions
from penstock.replication.fetch_session import SESSION_ERRORS, FetchPosition, Key, LeaderSession
from penstock.services.fetching.found import Found
from penstock.wire.kafka import fetch
from penstock.wire.kafka.generated.fetch import FetchRequest, ReplicaState, encode_request

VERSION = 17
TOPICS = [bytes([number]) * 16 for number in range(1, 4)]


def received(
    session: LeaderSession, wanted: dict[Key, FetchPosition], replica: int = 2
) -> fetch.FetchRequest:
    """What the leader decodes of the follower's next request."""
    topics, forgotten = session.ask(wanted)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=7),
        session_id=session.id,
        session_epoch=session.epoch,
        topics=topics,
        forgotten_topics_data=forgotten,
    )
    return fetch.decode_request(memoryview(encode_request(request, VERSION)), 0, VERSION)


def covered(session: FetchSession) -> dict[Key, FetchPosition]:
    return {
        (topic, partition.partition): FetchPosition(
            partition.leader_epoch,
            partition.offset,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.max_bytes,
        )
        for topic, wanted in session.topics()
        for partition in wanted
    }


def some(rng: random.Random, before: dict[Key, FetchPosition]) -> dict[Key, FetchPosition]:
    """A few more, fewer or moved than before."""
    wanted = dict(before)
    for _ in range(rng.randint(0, 4)):
        key = (rng.choice(TOPICS), rng.randrange(4))
        if rng.random() < 0.3:
            wanted.pop(key, None)
        else:
            wanted[key] = FetchPosition(rng.randrange(3), rng.randrange(9), rng.randrange(3), 0, 1000)
    return wanted


@pytest.mark.parametrize("seed", range(30))
def test_the_leader_knows_what_is_asked_for_whatever_gets_lost(seed: int) -> None:
    rng = random.Random(seed)
    leaders = FetchSessions(10, random.Random(1))
    follower = LeaderSession()
    wanted: dict[Key, FetchPosition] = {}
    for step in range(60):
        wanted = some(rng, wanted)
        match rng.randrange(8):
            case 0:
                leaders = FetchSessions(10, random.Random(seed + step))  # it was restarted
            case 1:
                received(follower, wanted)  # the request is lost
                follower.begin_anew()
                continue
        request = received(follower, wanted)
        try:
            session = leaders.find(request, 0.0, by_id=True)
        except ApiError as error:
            if error.code not in SESSION_ERRORS:
                raise
            follower.begin_anew()
            continue
        assert session is not None
        assert covered(session) == wanted
        if rng.random() < 0.2:
            follower.begin_anew()  # the answer is lost
        else:
            follower.answered(session.id)
    assert len(leaders) <= 1, "each session replaced the one before"


def test_only_what_changed_is_named() -> None:
    leaders, follower = FetchSessions(10, random.Random(1)), LeaderSession()
    wanted = {(topic, index): FetchPosition(1, 5, 1, 0, 1000) for topic in TOPICS for index in range(4)}

    def ask() -> fetch.FetchRequest:
        request = received(follower, dict(wanted))
        session = leaders.find(request, 0.0, by_id=True)
        assert session is not None
        follower.answered(session.id)
        return request

    assert sum(len(named) for _, named in ask().topics) == 12
    assert (ask().topics, follower.epoch) == ([], 2)
    wanted[TOPICS[1], 2] = FetchPosition(1, 6, 1, 0, 1000)
    del wanted[TOPICS[0], 0]
    request = ask()
    assert [(topic, [partition.partition for partition in named]) for topic, named in request.topics] == [
        (TOPICS[1], [2])
    ]
    assert request.forgotten == [(TOPICS[0], [0])]


def test_an_answer_that_nobody_takes_over_is_asked_for_again() -> None:
    follower = LeaderSession()
    wanted = {(TOPICS[0], 0): FetchPosition(1, 5, 1, 0, 1000)}
    follower.ask(wanted)
    follower.begin_anew()  # a partition was added meanwhile
    follower.answered(99)
    topics, _ = follower.ask(wanted)
    assert (follower.id, follower.epoch, len(topics)) == (99, 0, 1)


def test_what_could_not_be_noted_is_told_again() -> None:
    """A read error, or a full disk: the high watermark and the log start would be told only when they move again."""
    leaders, follower = FetchSessions(10, random.Random(1)), LeaderSession()
    wanted = {(TOPICS[0], index): FetchPosition(1, 5, 1, 0, 1000) for index in range(2)}

    def told() -> list[int]:
        session = leaders.find(received(follower, dict(wanted)), 0.0, by_id=True)
        assert session is not None
        assert covered(session) == wanted
        follower.answered(session.id)
        answers = [Found(index, 0, 5, 5, 0, None) for index in range(2)]
        return [found.partition for found in answers if session.changed(TOPICS[0], found)]

    assert told() == [0, 1]
    assert told() == []
    follower.missed((TOPICS[0], 1))
    assert told() == [1]
    assert told() == []


def test_without_room_at_the_leader_everything_is_named_each_time() -> None:
    follower = LeaderSession()
    wanted = {(TOPICS[0], 0): FetchPosition(1, 5, 1, 0, 1000)}
    for _ in range(2):
        topics, _ = follower.ask(wanted)
        assert (follower.id, follower.epoch, len(topics)) == (0, 0, 1)
        follower.answered(0)


def full_sessions(replicas: list[bool]) -> Iterator[tuple[FetchSessions, list[FetchSession]]]:
    sessions = FetchSessions(len(replicas), random.Random(1))
    wanted = {(TOPICS[0], 0): FetchPosition(1, 5, 1, 0, 1000)}
    made = []
    for number, is_replica in enumerate(replicas):
        session = sessions.find(
            received(LeaderSession(), wanted, 10 + number if is_replica else -1), float(number), by_id=True
        )
        assert session is not None
        made.append(session)
    yield sessions, made


@pytest.mark.parametrize(
    ("replicas", "now", "replica", "has_room"),
    [
        ([False, False], 5.0, -1, False),  # consumers wait until one idles
        ([False, False], 500.0, -1, True),
        ([False, False], 5.0, 3, True),  # followers do not
        ([True, False], 5.0, 3, True),
        ([True, True], 5.0, 3, False),  # but for each other
        ([True, True], 500.0, 3, True),
    ],
)
def test_followers_come_first_where_sessions_are_few(
    replicas: list[bool], now: float, replica: int, has_room: bool
) -> None:
    for sessions, _ in full_sessions(replicas):
        wanted = {(TOPICS[0], 0): FetchPosition(1, 5, 1, 0, 1000)}
        request = received(LeaderSession(), wanted, replica)
        assert (sessions.find(request, now, by_id=True) is not None) == has_room
        assert len(sessions) == len(replicas)


def answer(high_watermark: int, diverging: tuple[int, int] | None = None) -> Found:
    return Found(0, 0, high_watermark, high_watermark, 0, None, diverging=diverging)


def test_a_high_watermark_beside_a_divergence_is_told_again() -> None:
    sessions = FetchSessions(1, random.Random(1))
    wanted = {(TOPICS[0], 0): FetchPosition(1, 5, 1, 0, 1000)}
    session = sessions.find(received(LeaderSession(), wanted), 0.0, by_id=True)
    assert session is not None
    assert session.changed(TOPICS[0], answer(5))
    assert not session.changed(TOPICS[0], answer(5))
    assert session.is_news(TOPICS[0], answer(6))
    assert session.changed(TOPICS[0], answer(6, diverging=(1, 3)))
    assert session.is_news(TOPICS[0], answer(6))
    assert session.changed(TOPICS[0], answer(6))
    assert not session.is_news(TOPICS[0], answer(6))
