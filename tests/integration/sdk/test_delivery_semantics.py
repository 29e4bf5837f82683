"""At-most-once and at-least-once, with the consumer's process killed at every step of its loop (SPEC D1, D2, C4)."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.sdk.conftest import Cluster

from penstock import Producer

SCRIPT = Path(__file__).with_name("killed_consumer.py")
STEPS = ("before-take", "taken", "before-commit", "after-commit", "body-begins", "body-ends")
VALUES = [str(number) for number in range(20)]


def run(order: dict[str, object]) -> int:
    return subprocess.run([sys.executable, str(SCRIPT), json.dumps(order)], check=False).returncode


@pytest.mark.parametrize("commit_every", [0, 1000], ids=["one by one", "in batches"])
@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_a_consumer_killed_at_every_step(
    cluster: Cluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    delivery: str,
    commit_every: int,
) -> None:
    topic = new_topic(1)
    file = tmp_path / "worked-on"
    file.touch()
    order = {
        "bootstrap": cluster.bootstrap,
        "topic": topic,
        "group": f"{topic}-group",
        "delivery": delivery,
        "commit_every": commit_every,
        "file": str(file),
    }
    sent: list[str] = []
    with Producer(cluster.bootstrap) as producer:
        for round_, step in enumerate(STEPS):
            if commit_every and step.endswith("-commit") and delivery == "at-least-once":
                continue  # its only commit comes when it leaves
            # At-least-once takes all there is at once: there is no later time.
            once = commit_every or (step == "taken" and delivery == "at-least-once")
            values = [f"{step}-{value}" for value in VALUES]
            producer.send_many(topic, values).result()
            sent += values
            code = run({**order, "step": step, "nth": 1 if once else 3 + round_})
            assert code == -signal.SIGKILL, step
        producer.send(topic, "end").result()
    assert run(order) == 0
    worked_on = Counter(file.read_text().split())
    assert worked_on["end"] == 1
    del worked_on["end"]
    if delivery == "at-least-once":
        assert set(worked_on) == set(sent), "a message was never worked on"
    else:
        assert set(worked_on.values()) <= {1}, "a message was worked on twice"
        assert set(worked_on) <= set(sent)
        lost = len(sent) - len(worked_on)
        # At each death, what was committed but not worked on is gone: one message, or what was taken at once.
        assert lost <= (len(STEPS) if not commit_every else len(STEPS) * len(VALUES))
