"""What is not served: the Java client, KafkaJS and franz-go stop at once and say why (`make clients`)."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.services.refusals import NEXT_GENERATION_GROUPS, SHARE_GROUPS, TRANSACTIONS
from penstock.testing import BrokerProcess, broker

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
pytestmark = pytest.mark.clients
TOPIC = "refused"
JAVA = ("java", "-cp", f"{HERE}/java/target/lib/*", "penstock.clients.Refused")
KAFKAJS = ("node", f"{HERE}/js/refused.js")
FRANZ_GO = (f"{HERE}/go/target/member",)
NAMES = {JAVA: "java", KAFKAJS: "kafkajs", FRANZ_GO: "franz-go"}
FIND, JOIN, SHARE = "FindCoordinator", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"
_names = (f"client-{number}" for number in count())


@dataclass(frozen=True)
class Wish:
    program: tuple[str, ...]
    feature: str
    words: str  # of the client, as a regular expression
    told: tuple[str, str] | None = (
        None  # what the broker logs: the API and why; nothing where it is not asked
    )

    def __str__(self) -> str:
        return f"{NAMES[self.program]}-{self.feature}"

    @property
    def mark(self) -> pytest.MarkDecorator:
        return pytest.mark.ecosystem(NAMES[self.program])


WISHES = [
    Wish(
        JAVA,
        "transactions",
        f"^org.apache.kafka.common.KafkaException: .*{TRANSACTIONS}",
        (FIND, TRANSACTIONS),
    ),
    Wish(
        JAVA,
        "groups",
        "UnsupportedVersionException: .*group.protocol=classic",
        (JOIN, NEXT_GENERATION_GROUPS),
    ),
    Wish(JAVA, "share groups", "UnsupportedVersionException: .*share group", (SHARE, SHARE_GROUPS)),
    Wish(JAVA, "fencing", "UnsupportedVersionException: FindCoordinator", (FIND, TRANSACTIONS)),
    Wish(JAVA, "acls", "UnsupportedVersionException: The node does not support DESCRIBE_ACLS"),
    Wish(KAFKAJS, "transactions", "KafkaJSGroupCoordinatorNotFound", (FIND, TRANSACTIONS)),
    Wish(KAFKAJS, "acls", "KafkaJSServerDoesNotSupportApiKey"),
    Wish(FRANZ_GO, "transactions", "UNSUPPORTED_VERSION", (FIND, TRANSACTIONS)),
    Wish(FRANZ_GO, "acls", "broker is too old"),
]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        producer = Producer({"bootstrap.servers": process.bootstrap})
        producer.produce(TOPIC, b"hello")
        assert producer.flush(60) == 0
        yield process


def asked(running: BrokerProcess, program: tuple[str, ...], feature: str, name: str) -> dict[str, str]:
    """How the client's wish ended: `worked` or `refused`, with its words."""
    wanted = {"bootstrap": running.bootstrap, "topic": TOPIC, "feature": feature, "name": name}
    done = subprocess.run([*program, json.dumps(wanted)], capture_output=True, text=True, check=True)
    ended: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return ended


def told(running: BrokerProcess, name: str) -> list[tuple[str, str]]:
    line = re.compile(rf"WARNING .* refused (\S+) of client '{name}' at 127\.0\.0\.1: (.*)")
    return line.findall(running.log_path.read_text())


@pytest.mark.parametrize("wish", [pytest.param(wish, id=str(wish), marks=wish.mark) for wish in WISHES])
def test_a_client_is_refused_at_once(wish: Wish, running: BrokerProcess) -> None:
    name = next(_names)
    ended = asked(running, wish.program, wish.feature, name)
    assert re.search(wish.words, ended.get("refused", "")), ended
    assert told(running, name) == ([] if wish.told is None else [wish.told])


@pytest.mark.ecosystem("franz-go")
def test_franz_go_goes_on_with_a_classic_group(running: BrokerProcess) -> None:
    name = next(_names)
    assert asked(running, FRANZ_GO, "groups", name) == {"worked": "hello"}
    assert told(running, name) == [(JOIN, NEXT_GENERATION_GROUPS)]
