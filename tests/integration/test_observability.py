"""What an operator sees: /metrics, /healthz and the log lines of a live broker."""

import json
import re
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import BrokerProcess, broker


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    with broker({"penstock.log.format": "json"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(10):
            producer.produce("watched", b"value %d" % number)
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": running.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("watched", 0, 0)])
        assert len(consumer.consume(10, timeout=30)) == 10
        consumer.close()
        yield running


def get(process: BrokerProcess, path: str) -> tuple[int, str]:
    url = process.console_url + path
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in the metrics"
    return float(found[1])


def test_metrics_tell_of_replicas_the_controller_and_groups(process: BrokerProcess) -> None:
    _, text = get(process, "/metrics")
    assert value(text, "penstock_active_controller") == 1
    assert value(text, "penstock_led_partitions") == value(text, "penstock_partitions") >= 1
    assert value(text, 'penstock_groups{state="preparing_rebalance"}') == 0
    assert value(text, "penstock_groups_unavailable_partitions") == 0
    for name in (
        "under_replicated_partitions",
        "under_min_isr_partitions",
        "offline_partitions",
        "offline_replicas",
        "reassigning_partitions",
        "max_follower_lag_records",
        "isr_shrinks_total",
        "isr_expands_total",
        "retired_partitions",
        "relay_moved_records_total",
        "relay_moved_bytes_total",
        "offset_commits_total",
    ):
        assert value(text, f"penstock_{name}") == 0, name


def test_metrics_count_requests_bytes_and_messages(process: BrokerProcess) -> None:
    status, text = get(process, "/metrics")
    assert status == 200
    assert value(text, 'penstock_request_seconds_count{api="produce"}') >= 1
    assert value(text, 'penstock_request_seconds_count{api="fetch"}') >= 1
    assert value(text, 'penstock_request_seconds_bucket{api="produce",le="+Inf"}') >= 1
    assert value(text, "penstock_messages_in_total") == 10
    assert value(text, "penstock_received_bytes_total") > 100
    assert value(text, "penstock_sent_bytes_total") > 100
    assert value(text, "penstock_connections") >= 1
    assert value(text, 'penstock_purgatory_size{kind="fetch"}') >= 0
    assert value(text, 'penstock_event_loop_lag_seconds_bucket{le="0.05"}') >= 0


def test_metrics_tell_where_each_log_stands(process: BrokerProcess) -> None:
    _, text = get(process, "/metrics")
    labels = '{partition="0",topic="watched"}'
    assert value(text, f"penstock_log_start_offset{labels}") == 0
    assert value(text, f"penstock_log_end_offset{labels}") == 10
    assert value(text, f"penstock_high_watermark{labels}") == 10
    assert value(text, f"penstock_log_size_bytes{labels}") > 100


def test_metrics_tell_what_room_the_disk_has(process: BrokerProcess) -> None:
    _, text = get(process, "/metrics")
    usage = shutil.disk_usage(process.data_dir)
    assert value(text, "penstock_disk_size_bytes") == usage.total
    assert 0 < value(text, "penstock_disk_free_bytes") < usage.total


def test_metrics_are_named_as_promtool_wants_them(process: BrokerProcess) -> None:
    """The rules of `promtool check metrics`."""
    kinds = dict(re.findall(r"^# TYPE (penstock_\S+) (\S+)$", get(process, "/metrics")[1], re.MULTILINE))
    helped = set(re.findall(r"^# HELP (penstock_\S+) \S", get(process, "/metrics")[1], re.MULTILINE))
    assert helped == kinds.keys()
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert kind == "histogram" or not name.endswith(("_count", "_sum", "_bucket")), name
        assert not re.search(
            r"(^|_)(ms|milliseconds|minutes|hours|kb|mb|gauge|counter|histogram)(_|$)", name
        ), name
        assert name == name.lower()


def test_a_stop_warns_of_nothing() -> None:
    """With groups in memory, each in its partition."""
    with broker({"group.initial.rebalance.delay.ms": "0"}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("watched", b"value")
        assert producer.flush(30) == 0
        for number in range(3):
            consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": f"group-{number}"})
            consumer.commit(offsets=[TopicPartition("watched", 0, 1)], asynchronous=False)
            consumer.close()
        running.stop()
        assert "WARNING" not in running.log_path.read_text()


def test_healthz_says_ok(process: BrokerProcess) -> None:
    status, text = get(process, "/healthz")
    assert status == 200
    assert json.loads(text)["status"] == "ok"


def test_an_unknown_path_names_the_known_ones(process: BrokerProcess) -> None:
    status, text = get(process, "/nope")
    assert status == 404
    assert "/metrics" in text


def test_log_lines_are_json(process: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", process.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(100) == b"", "garbage is answered with a closed connection"
    lines = [json.loads(line) for line in process.log_path.read_text().splitlines()]
    assert any("closing the connection" in line["message"] for line in lines)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
