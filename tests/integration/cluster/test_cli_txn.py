"""Transactions of three brokers from the command line: coordinators everywhere, leaders everywhere."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.integration.cluster.harness import LASTING, PARTITIONS, Cluster
from tests.integration.commands import penstock

from penstock.client.admin.transactions import TransactionAdmin
from penstock.testing import cluster

SETTINGS = {
    **LASTING,
    "penstock.transactions.enable": "true",
    "transaction.state.log.num.partitions": "6",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(3, SETTINGS, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield Cluster(processes)


def begun(three: Cluster, name: str) -> Producer:
    """A message in each partition, in an open transaction."""
    producer = Producer({"bootstrap.servers": three.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(three.topic, name, partition=partition)
    assert producer.flush(60) == 0
    return producer


def read(three: Cluster) -> list[str]:
    done = penstock(
        *("consume", three.topic, "--from-beginning", "--no-follow", "--isolation", "read_committed"),
        bootstrap=three.bootstrap,
    )
    assert done.code == 0, done.err
    return sorted(done.out.split())


def test_transactions_are_seen_and_ended_wherever_they_are(three: Cluster) -> None:
    producers = {f"tx-{number}": begun(three, f"tx-{number}") for number in range(6)}
    listed = penstock("txn", "list", "--state", "Ongoing", "--json", bootstrap=three.bootstrap).json
    assert [each["transactional_id"] for each in listed] == sorted(producers)
    assert len({each["coordinator"] for each in listed}) > 1
    for producer in list(producers.values())[1:]:
        producer.commit_transaction(60)
    told = penstock("why", three.topic, "--json", bootstrap=three.bootstrap).json
    assert [(each["partition"], each["transactional_id"]) for each in told["held_back"]] == [
        (number, "tx-0") for number in range(PARTITIONS)
    ]
    assert read(three) == []
    done = penstock("txn", "abort", "tx-0", "--yes", bootstrap=three.bootstrap)
    assert done.code == 0, done.err
    three.until(lambda: len(read(three)) == 5 * PARTITIONS, "readers go on")

    # Open again, and forgotten by whoever could end it; other coordinators are there.
    open_ = begun(three, "tx-left")
    three.delete("__transaction_state")
    begun(three, "tx-new").commit_transaction(60)
    with TransactionAdmin(three.bootstrap) as admin:
        three.until(lambda: admin.describe(["tx-new"])["tx-new"].state == "CompleteCommit", "its markers")
    hanging = penstock("txn", "find-hanging", "--json", bootstrap=three.bootstrap).json
    assert [(each["partition"], each["transactional_id"]) for each in hanging] == [
        (number, None) for number in range(PARTITIONS)
    ]
    for each in hanging:
        place = (each["topic"], str(each["partition"]), str(each["start_offset"]))
        done = penstock(
            *(
                "txn",
                "abort",
                "--topic",
                place[0],
                "--partition",
                place[1],
                "--start-offset",
                place[2],
                "--yes",
            ),
            bootstrap=three.bootstrap,
        )
        assert done.code == 0, done.err
    assert read(three).count("tx-new") == PARTITIONS
    assert "tx-left" not in read(three)
    del open_

    verified = penstock("verify", three.topic, "--json", bootstrap=three.bootstrap)
    assert verified.json["identical"], verified.err
