"""Clients that take more than their share: the broker's memory stays bounded and everybody else is served."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from struct import pack

import pytest
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    anonymous_bytes,
    create_topic,
    end_offset,
    fetch_request,
    make_batch,
    metric,
    neighbour,
    open_descriptors,
    produced,
    read_log,
    values_in,
    wait_until,
)

from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, metadata

MEGABYTE = 1 << 20
MEMORY_SLACK_BYTES = 48 * MEGABYTE
FETCHES = 1000
PIPELINED = 40_000
LORISES = 400


@pytest.fixture(scope="module")
def megabytes(running: BrokerProcess) -> str:
    """A topic of eight batches of a megabyte each."""
    with RawClient(running.port) as client:
        assert create_topic(client, "megabytes").error_code == 0
        for number in range(8):
            assert produced(client, "megabytes", make_batch([bytes([number]) * 1_000_000])).error_code == 0
    return "megabytes"


@pytest.fixture(scope="module")
def crumbs(running: BrokerProcess) -> str:
    """A topic whose fetches are answered through memory rather than straight from the file."""
    with RawClient(running.port) as client:
        assert create_topic(client, "crumbs").error_code == 0
        assert produced(client, "crumbs", make_batch([bytes(25_000)])).error_code == 0
    return "crumbs"


def send_until_full(client: RawClient, data: bytes) -> int:
    """As much as the kernel takes while the broker stops reading; says how much that was."""
    sent = 0
    client.socket.settimeout(1.0)
    try:
        while sent < len(data):
            sent += client.socket.send(data[sent : sent + MEGABYTE])
    except TimeoutError:
        pass
    client.socket.settimeout(60.0)
    return sent


def test_a_client_that_asks_for_gigabytes_and_reads_nothing(running: BrokerProcess, megabytes: str) -> None:
    before = anonymous_bytes(running.pid)
    with (
        neighbour(running.port, running.pid, "beside-gigabytes") as other,
        RawClient(running.port, receive_buffer_bytes=4096) as greedy,
    ):
        request = fetch_request(megabytes, 0, partition_max_bytes=MEGABYTE)
        greedy.send_bytes(
            b"".join(greedy.frame(ApiKey.FETCH, FETCH_VERSION, request) for _ in range(FETCHES))
        )
        other.wait_for_rounds(50)
        # When it reads at last, it gets what it asked for, in order.
        for _ in range(20):
            answer = greedy.receive().responses[0].partitions[0]
            assert values_in(answer.records) == [b"\0" * 1_000_000]
    assert other.peak_bytes - before < MEMORY_SLACK_BYTES


def test_many_small_fetches_at_once_are_not_all_read_into_memory(running: BrokerProcess, crumbs: str) -> None:
    """A megabyte of requests asks for a gigabyte of answers below the size from which files are sent directly."""
    before = anonymous_bytes(running.pid)
    with (
        neighbour(running.port, running.pid, "beside-crumbs") as other,
        RawClient(running.port) as greedy,
    ):
        # One large request, so that the broker reads a megabyte at a time from this connection.
        assert produced(greedy, "nowhere", make_batch([bytes(MEGABYTE)])).error_code == 3
        request = fetch_request(crumbs, 0)
        # The topic takes a while to create, and requests wait for those before them: the rest arrives meanwhile.
        topics = [create_topics.CreatableTopic(name="slow", num_partitions=200, replication_factor=1)]
        slow = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        data = greedy.frame(ApiKey.CREATE_TOPICS, 7, slow)
        data += b"".join(greedy.frame(ApiKey.FETCH, FETCH_VERSION, request) for _ in range(PIPELINED))
        send_until_full(greedy, data)
        assert greedy.receive().topics[0].error_code == 0
        other.wait_for_rounds(50)
    assert other.peak_bytes - before < MEMORY_SLACK_BYTES


def test_tens_of_thousands_of_requests_without_reading_an_answer(running: BrokerProcess) -> None:
    before = anonymous_bytes(running.pid)
    with (
        neighbour(running.port, running.pid, "beside-pipelined") as other,
        RawClient(running.port, receive_buffer_bytes=4096) as greedy,
    ):
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="x" * 249)])
        data = b"".join(greedy.frame(ApiKey.METADATA, 9, request) for _ in range(PIPELINED))
        sent = send_until_full(greedy, data)
        assert sent < len(data), "the broker reads on although nobody takes its answers"
        other.wait_for_rounds(50)
        for _ in range(1000):
            assert greedy.receive().topics[0].name == "x" * 249
    assert other.peak_bytes - before < MEMORY_SLACK_BYTES


def test_answers_behind_one_that_waits_do_not_pile_up(running: BrokerProcess, megabytes: str) -> None:
    """Responses leave in order, so what follows a long poll is kept; how much of it is bounded."""
    before = anonymous_bytes(running.pid)
    with RawClient(running.port) as admin:
        assert create_topic(admin, "empty").error_code == 0
        assert create_topic(admin, "wide", partitions=2000).error_code == 0
    with (
        neighbour(running.port, running.pid, "beside-waiting") as other,
        RawClient(running.port) as greedy,
    ):
        patient = fetch_request("empty", 0, max_wait_ms=0x7FFFFFFF)
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="wide")])
        data = greedy.frame(ApiKey.FETCH, FETCH_VERSION, patient)
        data += b"".join(greedy.frame(ApiKey.METADATA, 9, asked) for _ in range(4000))
        greedy.send_bytes(data)
        other.wait_for_rounds(50)
        assert other.peak_bytes - before < MEMORY_SLACK_BYTES
        with RawClient(running.port) as writer:
            assert produced(writer, "empty", make_batch([b"at last"])).error_code == 0
        assert values_in(greedy.receive().responses[0].partitions[0].records) == [b"at last"]
        assert len(greedy.receive().topics[0].partitions) == 2000
        for _ in range(3999):
            assert len(greedy.receive_undecoded().body) > 2000 * 20


def test_slow_lorises_cost_what_they_send(running: BrokerProcess) -> None:
    """Half of them drip a header byte by byte, half announce 100 MB and send a little."""
    before = anonymous_bytes(running.pid)
    with neighbour(running.port, running.pid, "beside-lorises") as other, ExitStack() as stack:
        lorises = [stack.enter_context(RawClient(running.port)) for _ in range(LORISES)]
        frame = lorises[0].frame(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=[]))
        announcement = pack(">i", 100 * MEGABYTE) + frame[4:]
        for loris in lorises[1::2]:
            loris.send_bytes(announcement + bytes(10_000))
        for at in range(len(frame) - 1):
            for loris in lorises[::2]:
                loris.send_bytes(frame[at : at + 1])
        other.wait_for_rounds(20)
        assert other.peak_bytes - before < MEMORY_SLACK_BYTES
        lorises[0].send_bytes(frame[-1:])  # slow, but honest: it is answered
        assert lorises[0].receive().topics == []


@pytest.fixture(scope="module")
def limited() -> Iterator[BrokerProcess]:
    with broker({"max.connections": "20", "max.connections.per.ip": "12"}) as process:
        yield process


def test_connections_over_the_limit_are_closed_and_the_others_live_on(limited: BrokerProcess) -> None:
    refused = metric(limited.console_url, "penstock_connections_refused_total")
    with ExitStack() as stack:
        inside = [stack.enter_context(RawClient(limited.port)) for _ in range(12)]
        assert all(is_served(client) for client in inside)
        for _ in range(30):
            with RawClient(limited.port) as outside:
                assert outside.is_closed()
        assert all(is_served(client) for client in inside)
        assert metric(limited.console_url, "penstock_connections_refused_total") == refused + 30
        inside[0].close()
        wait_until(lambda: connects(limited.port), "there is room again")
    wait_until(lambda: metric(limited.console_url, "penstock_connections") == 0, "all are gone")


def test_the_limit_of_all_connections_counts_every_address(limited: BrokerProcess) -> None:
    """127.0.0.0/8 is one machine with many addresses."""
    with ExitStack() as stack:
        inside = []
        for number in range(20):
            connection = stack.enter_context(socket.socket())
            connection.settimeout(60)
            connection.bind((f"127.0.0.{2 + number % 2}", 0))
            connection.connect(("127.0.0.1", limited.port))
            inside.append(connection)
        wait_until(lambda: metric(limited.console_url, "penstock_connections") == 20, "all are in")
        with RawClient(limited.port) as outside:
            assert outside.is_closed()
    wait_until(lambda: connects(limited.port), "there is room again")


def is_served(client: RawClient) -> bool:
    return bool(client.call(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=[])).topics == [])


def connects(port: int) -> bool:
    with RawClient(port) as client:
        try:
            return is_served(client)
        except ConnectionError:
            return False


def test_idle_connections_are_closed_and_busy_ones_kept() -> None:
    with broker({"connections.max.idle.ms": "1000"}) as process, RawClient(process.port) as admin:
        assert create_topic(admin, "busy").error_code == 0
        before = open_descriptors(process.pid)
        with neighbour(process.port, process.pid, "working") as other, RawClient(process.port) as half:
            half.send_bytes(b"\0\0")
            with RawClient(process.port) as idle:
                assert idle.is_closed()
                assert half.is_closed()
            other.wait_for_rounds(3)
        wait_until(lambda: open_descriptors(process.pid) <= before, "descriptors are closed")


def test_a_connection_cut_in_the_middle_of_an_answer_leaves_nothing(
    running: BrokerProcess, megabytes: str
) -> None:
    before = open_descriptors(running.pid)
    request = fetch_request(megabytes, 0, partition_max_bytes=8 * MEGABYTE)
    for _ in range(20):
        with RawClient(running.port, receive_buffer_bytes=4096) as leaving:
            leaving.send_bytes(leaving.frame(ApiKey.FETCH, FETCH_VERSION, request))
            leaving.socket.recv(100)
    wait_until(lambda: open_descriptors(running.pid) <= before, "descriptors are closed")
    with RawClient(running.port) as client:
        assert end_offset(client, megabytes) == 8
    assert len(read_log(running.port, megabytes)) == 8
