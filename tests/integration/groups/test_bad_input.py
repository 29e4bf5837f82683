"""Members that are not who they say, come too late, say too much, or never say anything again.

With `PENSTOCK_PEER=kafka` the same against Apache Kafka, whose answers these are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

import pytest
from tests.integration.groups.raw_member import RawMember, commit, committed, find, join_request
from tests.integration.raw import RawClient, create_topic, make_batch, produced, wait_until
from tests.integration.scenarios.peer import PEER_VARIABLE
from tools.peers import ApacheKafka

from penstock.core.error_codes import ErrorCode as E
from penstock.testing import broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_groups, metadata

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offset.metadata.max.bytes": "100",
}
_names = count()


class Served(Protocol):
    @property
    def port(self) -> int: ...


@contextmanager
def chosen_broker() -> Iterator[Served]:
    if os.environ.get(PEER_VARIABLE) == "kafka":
        with ApacheKafka(SETTINGS) as kafka:
            yield kafka
    else:
        with broker(SETTINGS) as process:
            yield process


@pytest.fixture(scope="module")
def running() -> Iterator[Served]:
    with chosen_broker() as process, RawClient(process.port) as client:
        find(client)
        assert create_topic(client, "orders", 2).error_code == 0
        yield process


@pytest.fixture
def client(running: Served) -> Iterator[RawClient]:
    with RawClient(running.port) as raw_client:
        yield raw_client


@pytest.fixture
def member(client: RawClient) -> RawMember:
    raw_member = RawMember(client, f"group-{next(_names)}")
    assert raw_member.sync().assignment == b"all"
    return raw_member


def state_of(client: RawClient, group: str) -> tuple[str, int]:
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    found = client.call(ApiKey.DESCRIBE_GROUPS, 5, request).groups[0]
    return found.group_state, len(found.members)


def test_an_unknown_member_is_told(member: RawMember) -> None:
    assert member.heartbeat(member_id="stranger") is E.UNKNOWN_MEMBER_ID
    assert member.sync(member_id="stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert member.join("stranger").error_code == E.UNKNOWN_MEMBER_ID
    assert member.commit("orders", 5, member_id="stranger") is E.UNKNOWN_MEMBER_ID
    assert committed(member.client, member.group, "orders") == -1


def test_a_stale_generation_changes_nothing(member: RawMember) -> None:
    assert member.commit("orders", 9) is E.NONE
    for generation in (member.generation - 1, member.generation + 1):
        assert member.heartbeat(generation) is E.ILLEGAL_GENERATION
        assert member.sync(generation).error_code == E.ILLEGAL_GENERATION
        assert member.commit("orders", 5, generation=generation) is E.ILLEGAL_GENERATION
    assert committed(member.client, member.group, "orders") == 9


def test_a_fenced_static_member_is_told(client: RawClient, running: Served) -> None:
    group = f"group-{next(_names)}"
    old = RawMember(client, group, group_instance_id="one")
    assert old.sync().error_code == E.NONE
    with RawClient(running.port) as other:
        new = RawMember(other, group, group_instance_id="one")
        assert new.generation == old.generation, "the same instance again, so no rebalance"
        assert old.heartbeat() is E.FENCED_INSTANCE_ID
        assert old.sync().error_code == E.FENCED_INSTANCE_ID
        assert old.commit("orders", 5) is E.FENCED_INSTANCE_ID
        assert old.leave() is E.FENCED_INSTANCE_ID
        assert new.sync().assignment == b"all"
        assert new.commit("orders", 6) is E.NONE


def test_a_dead_members_commit_is_refused(member: RawMember) -> None:
    assert member.leave() is E.NONE
    assert member.commit("orders", 5) is E.UNKNOWN_MEMBER_ID
    assert (
        commit(member.client, "orders", 5, group=member.group, generation=3, member_id="x")
        is E.UNKNOWN_MEMBER_ID
    )


def test_heartbeats_that_stop_end_the_membership(member: RawMember, running: Served) -> None:
    with RawClient(running.port) as other:
        wait_until(lambda: state_of(other, member.group) == ("Empty", 0), "the silent member is expelled")
    assert member.heartbeat() is E.UNKNOWN_MEMBER_ID
    assert member.commit("orders", 5) is E.UNKNOWN_MEMBER_ID


def test_a_consumer_that_joins_and_never_syncs_is_dropped(client: RawClient, running: Served) -> None:
    silent = RawMember(client, f"group-{next(_names)}", session_timeout_ms=60_000)
    with RawClient(running.port) as other:
        wait_until(
            lambda: state_of(other, silent.group) == ("Empty", 0), "the one that never syncs is dropped"
        )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"session_timeout_ms": 499}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, E.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_illegal_join_is_refused(client: RawClient, fields: dict[str, object], expected: E) -> None:
    request = join_request(f"group-{next(_names)}", **fields)
    assert E(client.call(ApiKey.JOIN_GROUP, 9, request).error_code) is expected


def test_another_protocol_is_refused_and_the_group_goes_on(member: RawMember, running: Served) -> None:
    with RawClient(running.port) as other:
        answer = other.call(ApiKey.JOIN_GROUP, 9, join_request(member.group, protocol_type="connect"))
        assert E(answer.error_code) is E.INCONSISTENT_GROUP_PROTOCOL
    assert member.heartbeat() is E.NONE


def test_oversized_metadata_is_refused_and_nothing_is_stored(member: RawMember) -> None:
    assert member.commit("orders", 5, metadata="x" * 100) is E.NONE
    assert member.commit("orders", 6, metadata="x" * 101) is E.OFFSET_METADATA_TOO_LARGE
    assert committed(member.client, member.group, "orders") == 5


def test_commits_for_what_does_not_exist_are_refused(member: RawMember) -> None:
    assert member.commit("nowhere", 5) is E.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (2, -1):
        assert member.commit("orders", 5, partition=partition) is E.UNKNOWN_TOPIC_OR_PARTITION


def test_strangers_cannot_commit_while_a_group_has_members(member: RawMember) -> None:
    assert commit(member.client, "orders", 5, group=member.group) is E.UNKNOWN_MEMBER_ID
    assert commit(member.client, "orders", 5, group=f"group-{next(_names)}") is E.NONE


def test_clients_cannot_write_to_the_groups_topic(client: RawClient) -> None:
    answer = produced(client, "__consumer_offsets", make_batch([b"x"]))
    assert E(answer.error_code) is E.INVALID_TOPIC_EXCEPTION
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="__consumer_offsets")])
    (topic,) = client.call(ApiKey.METADATA, 9, asked).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50


def test_five_hundred_members_join_at_once(running: Served) -> None:
    group = f"group-{next(_names)}"
    clients = [RawClient(running.port) for _ in range(500)]
    try:
        settings = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
        for joiner in clients:
            joiner.send_bytes(joiner.frame(ApiKey.JOIN_GROUP, 9, join_request(group, **settings)))
        ids = [joiner.receive().member_id for joiner in clients]
        assert len(set(ids)) == 500
        # Whoever is in a generation that formed too early joins again, until one holds them all.
        early: set[int] = set()
        undecided: dict[int, list[int]] = {}  # by generation: those whose leader was not heard yet
        waiting: list[int] = []

        def rejoin(numbers: list[int]) -> None:
            for number in numbers:
                request = join_request(group, ids[number], **settings)
                clients[number].send_bytes(clients[number].frame(ApiKey.JOIN_GROUP, 9, request))
            waiting.extend(numbers)

        rejoin(list(range(500)))
        while waiting:
            number = waiting.pop(0)
            answer = clients[number].receive()
            assert answer.error_code == E.NONE, E(answer.error_code)
            generation = answer.generation_id
            undecided.setdefault(generation, []).append(number)
            if answer.leader == answer.member_id and len(answer.members) < 500:
                early.add(generation)
            if generation in early:
                rejoin(undecided.pop(generation))
        with RawClient(running.port) as other:
            assert state_of(other, group) == ("CompletingRebalance", 500)
    finally:
        for joiner in clients:
            joiner.close()
