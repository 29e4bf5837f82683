"""Retention waits for the archive on a live broker (A4): what is not archived stays, whatever else happens."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.commands import penstock
from tests.integration.test_retention import offsets, segments, wait_for

from penstock.testing import BrokerProcess, broker

MESSAGES = 100
SETTINGS = {"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}
REQUIRED, PROGRESS = "penstock.archive.required", "penstock.archive.progress"
ALARM = "penstock.archive.held.bytes.alarm"
# A tenth of a hundred messages to a segment, all of them old enough to go.
EXPIRES = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "0", "retention.ms": "60000"}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


def connect(running: BrokerProcess) -> AdminClient:
    """Keep it until the answer is there: it takes its requests along when it goes."""
    return AdminClient({"bootstrap.servers": running.bootstrap})


def create(running: BrokerProcess, topic: str, **more: str) -> None:
    config = {**EXPIRES, REQUIRED: "true", **more}
    admin = connect(running)
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result()


def fill(running: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 1})
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    for number in range(MESSAGES):
        producer.produce(topic, b"%d" % number, timestamp=hour_ago_ms)
    assert producer.flush(60) == 0


def topic_id(running: BrokerProcess, topic: str) -> str:
    admin = connect(running)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result()
    # librdkafka prints ids in plain base64, Kafka in the one for URLs.
    return str(described.topic_id).replace("+", "-").replace("/", "_")


def change(running: BrokerProcess, kind: ResourceType, name: str, setting: str, text: str) -> None:
    entry = ConfigEntry(setting, text, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = connect(running)
    admin.incremental_alter_configs([resource])[resource].result()


def archived_to(running: BrokerProcess, topic: str, offset: int) -> None:
    text = f"{topic_id(running, topic)} 0:{offset}"
    change(running, ResourceType.TOPIC, topic, PROGRESS, text)


def metric(running: BrokerProcess, name: str, topic: str) -> float | None:
    with urllib.request.urlopen(running.console_url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf'^{name}{{[^}}]*topic="{topic}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else None


def wait_for_rounds(running: BrokerProcess, witness: str) -> None:
    """Until retention has worked through a topic that was made, and filled, later than whatever the test is about."""
    admin = connect(running)
    admin.create_topics([NewTopic(witness, 1, config=EXPIRES)])[witness].result()
    fill(running, witness)
    wait_for(lambda: offsets(running, witness) == (MESSAGES, MESSAGES))


def first_segment(running: BrokerProcess, topic: str) -> int:
    return int(Path(segments(running, topic)[0]).stem)


def test_segments_stay_until_the_archive_has_them_and_then_go(running: BrokerProcess) -> None:
    create(running, "held")
    fill(running, "held")
    before = segments(running, "held")
    assert len(before) > 5
    wait_for_rounds(running, "held-witness")
    assert (offsets(running, "held"), segments(running, "held")) == ((0, MESSAGES), before)
    archived_to(running, "held", 50)
    wait_for(lambda: offsets(running, "held")[0] > 0)
    wait_for_rounds(running, "held-witness-2")
    low, high = offsets(running, "held")
    assert 30 < low <= 50
    assert high == MESSAGES
    wait_for(lambda: first_segment(running, "held") == low)
    archived_to(running, "held", MESSAGES)
    wait_for(lambda: offsets(running, "held") == (MESSAGES, MESSAGES))
    wait_for(lambda: segments(running, "held") == [f"{MESSAGES:020d}.log"])


def test_size_waits_as_age_does(running: BrokerProcess) -> None:
    create(running, "large", **{"retention.ms": "-1", "retention.bytes": "1500"})
    fill(running, "large")
    wait_for_rounds(running, "large-witness")
    assert offsets(running, "large") == (0, MESSAGES)
    archived_to(running, "large", MESSAGES)
    wait_for(lambda: len(segments(running, "large")) <= 3)  # the last, and what makes up the size


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_progress_and_what_waits_for_it_survive_a_restart(tmp_path: Path, end: str) -> None:
    process = BrokerProcess(tmp_path / "data", SETTINGS)
    process.start()
    try:
        create(process, "t")
        fill(process, "t")
        archived_to(process, "t", 50)
        wait_for(lambda: offsets(process, "t")[0] > 0)
        end_it: Callable[[], None] = getattr(process, end)
        end_it()
        process.start()
        wait_for_rounds(process, "witness")
        low, high = offsets(process, "t")
        assert 0 < low <= 50 < high == MESSAGES
        archived_to(process, "t", MESSAGES)
        wait_for(lambda: offsets(process, "t") == (MESSAGES, MESSAGES))
    finally:
        process.stop()


def test_a_topic_made_again_starts_without_progress(running: BrokerProcess) -> None:
    create(running, "again")
    fill(running, "again")
    old_id = topic_id(running, "again")
    archived_to(running, "again", MESSAGES)
    wait_for(lambda: offsets(running, "again")[0] == MESSAGES)
    admin = connect(running)
    admin.delete_topics(["again"])["again"].result()
    create(running, "again")
    fill(running, "again")
    with pytest.raises(KafkaException, match="deleted and created again") as refused:
        change(running, ResourceType.TOPIC, "again", PROGRESS, f"{old_id} 0:{MESSAGES}")
    assert refused.value.args[0].name() == "INVALID_CONFIG"
    wait_for_rounds(running, "again-witness")
    assert offsets(running, "again") == (0, MESSAGES)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "is not a topic id"),
        ("{id} 0", "is not <partition>:<next offset>"),
        ("{id} 3:0", "names partition 3"),
        ("{id} 0:1", "readers can see it only up to 0"),
    ],
)
def test_progress_that_cannot_be_is_refused(running: BrokerProcess, text: str, reason: str) -> None:
    topic = f"refused-{abs(hash(text))}"
    create(running, topic)
    with pytest.raises(KafkaException, match=re.escape(reason)) as refused:
        change(running, ResourceType.TOPIC, topic, PROGRESS, text.format(id=topic_id(running, topic)))
    assert refused.value.args[0].name() == "INVALID_CONFIG"


def test_what_is_held_is_measured_and_an_alarm_when_it_is_too_much(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", SETTINGS)
    process.start()
    try:
        create(process, "t")
        fill(process, "t")
        wait_for(lambda: (metric(process, "penstock_archive_held_bytes", "t") or 0) > 1000)
        assert metric(process, "penstock_archive_lag_records", "t") == MESSAGES
        assert metric(process, "penstock_archive_alarm", "t") == 0
        assert "more than penstock.archive" not in process.log_path.read_text()
        change(process, ResourceType.BROKER, "1", ALARM, "1000")
        wait_for(lambda: metric(process, "penstock_archive_alarm", "t") == 1)
        wait_for_rounds(process, "witness")
        assert process.log_path.read_text().count("more than penstock.archive.held.bytes.alarm") == 1
        assert doctor_on_archive(process)["level"] == "warn"
        archived_to(process, "t", MESSAGES)
        wait_for(lambda: metric(process, "penstock_archive_alarm", "t") == 0)
        assert metric(process, "penstock_archive_held_bytes", "t") == 0
        assert metric(process, "penstock_archive_lag_records", "t") == 0
        assert doctor_on_archive(process)["level"] == "ok"
        change(process, ResourceType.TOPIC, "t", REQUIRED, "false")
        wait_for(lambda: metric(process, "penstock_archive_held_bytes", "t") is None)
    finally:
        process.stop()


def doctor_on_archive(process: BrokerProcess) -> dict[str, str]:
    console_port = process.console_url.rpartition(":")[2].strip("/")
    ports = ("--port", str(process.port), "--console-port", console_port)
    done = penstock("doctor", "--data-dir", str(process.data_dir), *ports, "--json")
    (finding,) = [entry for entry in done.json["findings"] if entry["check"] == "archive"]
    return dict(finding)
