"""What the same abuse does to Apache Kafka, where it is not clear what is fair: `make soak PART=fair`.

    python -m tests.abuse.beside_kafka [CASE ...]

Each case is told to a fresh broker of each kind, with the good client beside it. A row: the case, the broker, the good
client's rounds, errors, p50 and p99, and the most memory that the broker had over what it began with. Kafka runs with
its own settings and the heap that its scripts give it.
"""

import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from tests.abuse import harmless
from tests.abuse.scene import MEGABYTE, Attacked, Samples, good_client, nearly_all
from tests.abuse.test_bombs import of_one_value, throw
from tests.abuse.test_large_frames import send_at_once
from tests.abuse.test_left import crowd
from tests.abuse.test_long_names import large_members, long_group_ids
from tests.abuse.test_stalls import ask_for_names, create_at_once
from tests.integration.raw import RawClient, anonymous_bytes, wait_until
from tools.peers.apache_kafka import ApacheKafka
from tools.peers.penstock import PenstockPeer
from tools.peers.process import BrokerProcess

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest

WARM_ROUNDS = 200  # a JVM compiles what it runs often
CASE_SECONDS_MAX = 180
ROW = "{:<42} {:<9} {:>6} {:>6} {:>9} {:>9} {:>8}  {}"


def _groups(then: Callable[[Attacked], None], attacked: Attacked) -> None:
    """Once there is a coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with RawClient(attacked.port) as client:
        wait_until(
            lambda: not client.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code,
            "there is a coordinator",
        )
    then(attacked)


def _bombs(attacked: Attacked) -> None:
    throw(attacked.port, of_one_value(98 * MEGABYTE), 30, 1)


def _large_frames(attacked: Attacked) -> None:
    send_at_once(attacked.port, 20, 85 * MEGABYTE)


CASES: dict[str, Callable[[Attacked], None]] = {
    "2,000 silent connections": partial(harmless.silent_connections, number=2000),
    "50 slow readers": partial(harmless.slow_readers, number=50),
    "30 bombs of 98 MB at once": _bombs,
    "20 frames of 85 MB at once": _large_frames,
    "20 clients, group ids of 32 KB": partial(_groups, partial(long_group_ids, clients=20, requests=200)),
    "members that tell 1 MB, 20 groups of 50": partial(
        _groups, partial(large_members, groups=20, members=50)
    ),
    "350,000 fetches that never have enough": partial(crowd, clients=100),
    "Metadata for 100,000 names": partial(ask_for_names, number=100_000),
    "a topic of 2,000 partitions": partial(create_at_once, partitions=2000),
}


def tell(case: str, broker: BrokerProcess) -> str:
    """The row of one case."""
    notes = Path(tempfile.mkdtemp()) / "notes.txt"
    attacked = Attacked(broker.port, "good", notes)
    with broker, good_client(broker.port, attacked.topic, notes):
        attacked.wait_for_rounds(WARM_ROUNDS)
        before, warm = anonymous_bytes(broker.pid), len(attacked.lines())
        samples = Samples(broker.pid)
        samples.start()
        failed = _outcome(case, attacked)
        try:
            attacked.wait_for_rounds(3)
        except AssertionError:
            failed = f"{failed}; the good client is no longer served"
        samples.stop()
        lines = attacked.lines()[warm:]
    latencies = sorted(float(line.split()[3]) for line in lines if line.startswith("ok "))
    errors = len(lines) - len(latencies)
    served = (f"{median(latencies):.1f} ms", f"{nearly_all(latencies):.1f} ms") if latencies else ("-", "-")
    grown = f"{max(0, samples.memory_peak_bytes - before) >> 20} MB"
    return ROW.format(case, broker.name, len(lines), errors, *served, grown, failed)


def _outcome(case: str, attacked: Attacked) -> str:
    """What became of those who were hostile, where not all were answered as they expected."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            CASES[case](attacked)
        except (OSError, AssertionError) as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CASE_SECONDS_MAX)
    if thread.is_alive():
        return f"not done after {CASE_SECONDS_MAX} s"
    return f"{failures[0]!r:.60}".replace("\n", " ") if failures else ""


def main(cases: list[str]) -> None:
    print(ROW.format("case", "broker", "rounds", "errors", "p50", "p99", "memory", ""))
    for case in cases or CASES:
        for kind in (ApacheKafka, PenstockPeer):
            print(tell(case, kind()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
