"""The differential oracle: Penstock beside Apache Kafka, and Kafka beside itself (`make clients`)."""

from __future__ import annotations

import pytest
from tests.clients.oracle.accepted import load
from tests.clients.oracle.brokers import compared
from tests.clients.oracle.model import API_NAMES
from tests.clients.oracle.report import sent_text, split, text
from tests.clients.oracle.run import PER_VERSION, Result, run

# The whole comparison is one fixture and takes minutes: the guard against hangs must be wider than usual.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(3600)]
SELF_COUNT = 20


@pytest.fixture(scope="module")
def result() -> Result:
    with compared("kafka", "penstock") as (kafka, penstock):
        return run(kafka, penstock, list(API_NAMES), accepted=load())


def test_every_difference_from_kafka_is_accepted_with_a_reason(result: Result) -> None:
    left_over, _ = split(result.findings, load())
    print(sent_text(result))
    assert not left_over, text(left_over)


def test_every_accepted_difference_is_still_seen(result: Result) -> None:
    _, unused = split(result.findings, load())
    assert not unused, "\n".join(f"{entry.api} {entry.path}: {entry.reason}" for entry in unused)


def test_every_version_was_asked_often_enough_half_of_it_wrong(result: Result) -> None:
    versions = {(api, version) for api, version, _ in result.sent if api in API_NAMES.values()}
    assert {api for api, _ in versions} == set(API_NAMES.values())
    for api, version in versions:
        good, bad = (result.sent[api, version, valid] for valid in (True, False))
        assert good + bad >= PER_VERSION, (api, version, good, bad)
        assert bad >= PER_VERSION // 2, (api, version, good, bad)


def test_kafka_does_not_differ_from_itself() -> None:
    """What is compared is settled and normalised, or two brokers of one kind would differ.

    But for the quorum's own counts: two of Kafka's have not taken the same number of steps either.
    """
    own_counts = [entry for entry in load() if entry.api == "DescribeQuorum"]
    with compared("kafka", "kafka") as (left, right):
        same = run(left, right, list(API_NAMES), accepted=own_counts, count=SELF_COUNT)
    left_over, _ = split(same.findings, own_counts)
    assert not left_over, text(left_over)
