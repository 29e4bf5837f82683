"""Kafka's own tool for transactions: what it lists, what it takes for hanging, and what it may abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tools.peers import apache_kafka

from penstock.client.admin.transactions import TransactionAdmin
from penstock.client.topic_partition import TopicPartition
from penstock.testing import BrokerProcess, broker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.clients
TOOL = "org.apache.kafka.tools.TransactionsCommand"
PLACE = TopicPartition("orders", 0)


@pytest.fixture
def running() -> Iterator[BrokerProcess]:
    with broker({"penstock.transactions.enable": "true"}) as process:
        yield process


def tool(running: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return apache_kafka.run_tool(TOOL, "--bootstrap-server", running.bootstrap, *arguments)


def rows(running: BrokerProcess, *arguments: str) -> list[dict[str, str]]:
    """The table that it prints."""
    done = tool(running, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    head, *lines = [line.split("\t") for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(map(str.strip, head), map(str.strip, line), strict=False)) for line in lines]


def test_kafkas_tool_finds_and_aborts_what_hangs_and_nothing_else(running: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(PLACE.topic, 1)])[PLACE.topic].result()
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "tx", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(PLACE.topic, b"1", partition=0)
    assert producer.flush(30) == 0

    (listed,) = rows(running, "list")
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("tx", "Ongoing")
    (described,) = rows(running, "describe", "--transactional-id", "tx")
    assert described["TopicPartitions"] == "orders-0"
    (writes,) = rows(running, "describe-producers", "--topic", "orders", "--partition", "0")
    assert (writes["ProducerId"], writes["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")

    hanging = ("find-hanging", "--topic", "orders", "--max-transaction-timeout", "0")
    abort = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    assert rows(running, *hanging) == []
    refused = tool(running, *abort)
    assert refused.returncode != 0
    assert "operation in an invalid state" in refused.stderr

    with TransactionAdmin(running.bootstrap) as ours:
        assert len(ours.open_in([PLACE])) == 1
        admin.delete_topics(["__transaction_state"])["__transaction_state"].result()
        (found,) = rows(running, *hanging)
        assert (found["Topic"], found["StartOffset"]) == ("orders", "0")
        done = tool(running, *abort)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ours.open_in([PLACE]) == []
