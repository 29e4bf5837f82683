"""docs/testing.md does what it says: its files are written as named there, and run in a session of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.integration.pages import DOCS

from penstock.testing import BrokerProcess, broker

PAGE = (DOCS / "testing.md").read_text()
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PENSTOCK_"))
}

# Run after the page's own, in the same session.
ISOLATION = """
import pytest
from penstock import Admin

seen = []

@pytest.mark.parametrize("number", [1, 2])
def test_a_topic_is_the_tests_own(penstock_broker, penstock_topic, penstock_group, number):
    names = {topic.name for topic in Admin(penstock_broker.bootstrap).topics() if not topic.internal}
    assert names == {penstock_topic}, "those of the tests before are gone"
    assert not {penstock_topic, penstock_group} & set(seen)
    seen.extend([penstock_topic, penstock_group])

def test_it_ends_in_the_midst_of_what_it_does(penstock_broker, penstock_topic):
    penstock_broker.kill()

def test_the_next_one_finds_a_broker(penstock_broker, penstock_topic):
    assert penstock_broker.is_running

def test_it_deleted_its_topic_itself(penstock_broker, penstock_topic):
    Admin(penstock_broker.bootstrap).delete(penstock_topic)

def test_one_of_its_own(penstock_own_broker, penstock_broker):
    assert penstock_own_broker.port != penstock_broker.port
    assert Admin(penstock_own_broker.bootstrap).topics() == []

def test_the_settings_are_those_of_conftest(penstock_own_broker):
    admin = Admin(penstock_own_broker.bootstrap)
    admin.create("as-configured")
    assert len(admin.describe("as-configured").partitions) == 3
"""


def run(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    (tmp_path / "test_z_isolation.py").write_text(ISOLATION)
    return tmp_path


def test_the_tests_pass_as_written(place: Path) -> None:
    said = run(place, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    written = sum(code.count("\ndef test_") for code in FILES.values())
    assert written >= 5
    assert f"{written + 7} passed" in said


def test_the_script_runs_as_written(place: Path) -> None:
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", run(place, "script.py"))


def test_the_first_member_of_a_group_joins_at_once() -> None:
    def delay(process: BrokerProcess) -> str:
        resource = ConfigResource(ResourceType.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        return admin.describe_configs([resource])[resource].result()["group.initial.rebalance.delay.ms"].value

    with broker() as process:
        assert delay(process) == "0"
    with broker({"group.initial.rebalance.delay.ms": "7"}) as process:
        assert delay(process) == "7"
