"""Reads that ask for what is not there: answered as Kafka answers, the connection lives on."""

from typing import Any

import pytest
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    anonymous_bytes,
    end_offset,
    fetch_request,
    fetched,
    make_batch,
    metric,
    produced,
    values_in,
    wait_until,
)

from penstock.core.error_codes import ErrorCode as E
from penstock.core.limits import FETCH_SESSION_PARTITIONS_MAX
from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import fetch

SESSION_BYTES_MAX = 200 << 20


@pytest.fixture
def written(client: RawClient, topic: str) -> str:
    """A topic with three records in its first partition."""
    for value in (b"a", b"b", b"c"):
        assert produced(client, topic, make_batch([value])).error_code == 0
    return topic


def summary(answer: Any) -> tuple[E, int, int, int, bytes]:
    return (
        E(answer.error_code),
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        bytes(answer.records),
    )


@pytest.mark.parametrize("offset", [4, -1, -5, 1 << 62, -(1 << 63)])
def test_offsets_out_of_range(client: RawClient, written: str, offset: int) -> None:
    assert summary(fetched(client, written, offset)) == (E.OFFSET_OUT_OF_RANGE, -1, -1, -1, b"")
    assert summary(fetched(client, written, 3)) == (E.NONE, 3, 3, 0, b"")


@pytest.mark.parametrize("number", [2, -1, 0x7FFFFFFF])
def test_unknown_partitions(client: RawClient, written: str, number: int) -> None:
    answer = fetched(client, written, 0, partition=number)
    assert summary(answer) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, b"")
    assert answer.aborted_transactions == []


@pytest.mark.parametrize("name", ["nowhere", "a/b", "", "x" * 250])
def test_unknown_topics(client: RawClient, name: str) -> None:
    assert summary(fetched(client, name, 0)) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1, b"")


def test_a_name_that_is_no_utf8_is_echoed_with_replacement_characters(client: RawClient) -> None:
    client.send_bytes(client.frame(ApiKey.FETCH, 11, fetch_request("??", 0)).replace(b"??", b"\xff\xfe"))
    answer = client.receive().responses[0]
    assert answer.topic == "\ufffd\ufffd"
    assert E(answer.partitions[0].error_code) is E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "limits", [{"max_bytes": -1}, {"partition_max_bytes": -1}, {"max_bytes": -(1 << 31)}]
)
def test_negative_limits_are_refused(client: RawClient, written: str, limits: dict[str, int]) -> None:
    assert summary(fetched(client, written, 0, **limits)) == (E.UNKNOWN_SERVER_ERROR, -1, -1, -1, b"")


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"partition_max_bytes": 0}, {"max_bytes": 1}])
def test_the_first_batch_comes_whatever_the_limit(
    client: RawClient, written: str, limits: dict[str, int]
) -> None:
    assert values_in(fetched(client, written, 0, **limits).records) == [b"a"]


def test_negative_waits_do_not_wait(client: RawClient, written: str) -> None:
    answer = fetched(client, written, 3, max_wait_ms=-1, min_bytes=1)
    assert E(answer.error_code) is E.NONE
    assert values_in(fetched(client, written, 0, max_wait_ms=-1, min_bytes=-1).records) == [b"a", b"b", b"c"]


def test_an_unknown_isolation_level_is_refused_as_a_whole(client: RawClient, written: str) -> None:
    answer = client.call(ApiKey.FETCH, FETCH_VERSION, fetch_request(written, 0, isolation_level=5))
    assert E(answer.error_code) is E.UNKNOWN_SERVER_ERROR
    assert summary(answer.responses[0].partitions[0]) == (E.UNKNOWN_SERVER_ERROR, -1, -1, -1, b"")


@pytest.mark.parametrize(("level", "aborted"), [(0, None), (1, [])])
def test_only_readers_of_committed_data_hear_of_aborted_transactions(
    client: RawClient, written: str, level: int, aborted: list[object] | None
) -> None:
    answer = fetched(client, written, 0, isolation_level=level)
    assert answer.aborted_transactions == aborted
    assert values_in(answer.records) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("replica", [1, 5])
def test_replicas_nobody_placed_read_nothing(client: RawClient, written: str, replica: int) -> None:
    answer = fetched(client, written, 0, replica_id=replica)
    assert summary(answer) == (E.NOT_LEADER_OR_FOLLOWER, -1, -1, -1, b"")
    assert E(fetched(client, written, 0, replica_id=-2).error_code) is E.NONE


def test_a_partition_named_twice_is_answered_once(client: RawClient, written: str) -> None:
    request = fetch_request(written, 0)
    request.topics += fetch_request(written, 2).topics
    answer = client.call(ApiKey.FETCH, FETCH_VERSION, request)
    assert len(answer.responses) == 1
    assert [values_in(partition.records) for partition in answer.responses[0].partitions] == [[b"c"]]


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (123, 5, E.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, E.FETCH_SESSION_ID_NOT_FOUND),
        (0, -2, E.FETCH_SESSION_ID_NOT_FOUND),
        (-1, 0x7FFFFFFF, E.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_sessions_that_are_not_there(
    client: RawClient, written: str, session_id: int, epoch: int, code: E
) -> None:
    request = fetch_request(written, 0, session_id=session_id, session_epoch=epoch)
    answer = client.call(ApiKey.FETCH, FETCH_VERSION, request)
    assert (E(answer.error_code), answer.session_id, answer.responses) == (code, 0, [])


def test_sessions_used_wrongly(client: RawClient, written: str) -> None:
    def ask(epoch: int, version: int = FETCH_VERSION) -> Any:
        request = fetch.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=epoch,
        )
        return client.call(ApiKey.FETCH, version, request)

    session = client.call(ApiKey.FETCH, FETCH_VERSION, fetch_request(written, 3, session_epoch=0)).session_id
    assert session > 0
    assert E(ask(2).error_code) is E.INVALID_FETCH_SESSION_EPOCH
    assert E(ask(1, version=13).error_code) is E.FETCH_SESSION_TOPIC_ID_ERROR
    assert E(ask(1).error_code) is E.NONE
    assert E(ask(1).error_code) is E.INVALID_FETCH_SESSION_EPOCH
    assert ask(-1).session_id == 0
    assert E(ask(2).error_code) is E.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_of_half_a_million_partitions_are_not_remembered(running: BrokerProcess, topic: str) -> None:
    """Each of these is served as a full fetch; none is kept once all together would cost too much memory."""
    count = 50_000
    request = fetch_request(topic, 0, session_epoch=0)
    request.topics[0].partitions = [
        fetch.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(count)
    ]
    before_bytes = anonymous_bytes(running.pid)
    sessions = []
    for _ in range(FETCH_SESSION_PARTITIONS_MAX // count + 6):
        with RawClient(running.port) as client:
            answer = client.call(ApiKey.FETCH, FETCH_VERSION, request)
        assert len(answer.responses[0].partitions) == count
        sessions.append(answer.session_id)
    assert sum(session != 0 for session in sessions) == FETCH_SESSION_PARTITIONS_MAX // count
    assert anonymous_bytes(running.pid) - before_bytes < SESSION_BYTES_MAX
    with RawClient(running.port) as client:  # closed again, they make room for the next ones
        for session in filter(None, sessions):
            client.call(ApiKey.FETCH, FETCH_VERSION, fetch_request(topic, 0, session_id=session))
        request = fetch_request(topic, 0, session_epoch=0)
        assert client.call(ApiKey.FETCH, FETCH_VERSION, request).session_id > 0


def test_polls_of_weeks_end_with_their_connection(
    running: BrokerProcess, client: RawClient, topic: str
) -> None:
    """A long poll holds memory; a client that is gone gets none of it back, so nobody may keep it for them."""
    patient = fetch_request(topic, 0, max_wait_ms=0x7FFFFFFF, min_bytes=0x7FFFFFFF)

    def waiting() -> float:
        return metric(running.console_url, 'penstock_purgatory_size{kind="fetch"}')

    for _ in range(5):
        with RawClient(running.port) as leaving:
            leaving.send_bytes(
                b"".join(leaving.frame(ApiKey.FETCH, FETCH_VERSION, patient) for _ in range(50))
            )
            wait_until(lambda: waiting() == 50, "the fetches wait")
        wait_until(lambda: waiting() == 0, "the fetches are given up")
    assert end_offset(client, topic) == 0
