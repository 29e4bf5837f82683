"""`make bench`: run the measurements and write the report.

    python -m benchmarks.run [--part PART]... [--peers penstock,kafka] [--quick] [--scale 0.1] [--rounds 5]

Rounds are interleaved (A B A B …), so what disturbs the machine for a while disturbs everybody. Results go to
`benchmarks/results/`, one file per measurement; `docs/benchmarks.md` is made from all of them, but never from
shrunken runs.
"""

from __future__ import annotations

import argparse
import platform
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from tools.peers import ApacheKafka, PeerError, PenstockPeer, maven, spark_kafka

from benchmarks import cluster, groups, load, machine, report, results, sdk
from benchmarks.contenders import PEERS, Bench
from benchmarks.growth import GROWTH
from benchmarks.measurements import SHOW, Measurement
from benchmarks.results import Result
from benchmarks.spark import SPARK

if TYPE_CHECKING:
    from benchmarks.load import Metrics

MEASUREMENTS = (*SHOW, *groups.MEASUREMENTS, *sdk.MEASUREMENTS, *cluster.MEASUREMENTS, *SPARK, *GROWTH)
QUICK_SCALE = 0.2
QUICK_ROUNDS = 2


def arguments(command_line: list[str] | None = None) -> argparse.Namespace:
    names = [*dict.fromkeys(item.part for item in MEASUREMENTS), *(item.key for item in MEASUREMENTS)]
    parser = argparse.ArgumentParser(prog="make bench", description="Penstock beside Apache Kafka.")
    parser.add_argument("--part", action="append", choices=names, metavar="PART", help=", ".join(names))
    parser.add_argument("--peers", default=",".join(PEERS), help="which brokers take part")
    parser.add_argument("--quick", action="store_true", help="small and few: to see that it works")
    parser.add_argument("--scale", type=float, help="multiplies bytes, seconds, connections and partitions")
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own number")
    parser.add_argument("--dir", type=Path, help="where the brokers keep their data (default: the temp dir)")
    parser.add_argument("--report-only", action="store_true", help="write the report from earlier results")
    return parser.parse_args(command_line)


def chosen(parts: list[str] | None, *, quick: bool) -> list[Measurement]:
    if parts:
        return [item for item in MEASUREMENTS if item.part in parts or item.key in parts]
    return list(SHOW) if quick else list(MEASUREMENTS)


def measure(bench: Bench, item: Measurement, rounds: int, warmup_rounds: int) -> dict[str, list[Metrics]]:
    taking_part = [who for who in item.contenders if who.peer in (*bench.peers, "machine")]
    collected: dict[str, list[Metrics]] = {who.key: [] for who in taking_part}
    for number in range(warmup_rounds + rounds):
        for who in taking_part:
            metrics = item.run(bench, who)
            label = "warm-up" if number < warmup_rounds else f"round {number - warmup_rounds + 1}"
            say(f"  {item.key:22} {label:8} {who.key:16} {short(metrics)}")
            if number >= warmup_rounds:
                collected[who.key].append(metrics)
    for who in taking_part:
        if who.key in item.topics:
            bench.delete_topic(who, item.topics.pop(who.key))
    return collected


def short(metrics: Metrics) -> str:
    return "  ".join(f"{name}={value:.6g}" for name, value in metrics.items())


def say(text: str) -> None:
    print(text, flush=True)


def first_line(*command: str) -> str:
    """What a program says about its version; `unknown` when it is not there or says nothing."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError:
        return "unknown"
    return done.stdout.partition("\n")[0] or "unknown"


def installed_versions() -> dict[str, str]:
    return {
        "penstock": PenstockPeer.installed_version(),
        "python": f"Python {platform.python_version()}",
        "kafka": ApacheKafka.installed_version(),
        "pyspark": metadata.version("pyspark"),
        "connector": maven.pinned(spark_kafka.POM, "connector.version"),
        "java": first_line("java", "-version").replace('"', ""),
        "librdkafka": first_line("pkg-config", "--modversion", "rdkafka"),
    }


def run(options: argparse.Namespace) -> None:
    peers = tuple(options.peers.split(","))
    unknown = set(peers) - set(PEERS)
    if unknown:
        raise PeerError(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    scale = options.scale or (QUICK_SCALE if options.quick else 1.0)
    load.build()
    machine.raise_file_limit()
    versions = installed_versions()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.dir) as directory,
        Bench(peers, Path(directory), scale=scale) as bench,
    ):
        for item in chosen(options.part, quick=options.quick):
            rounds = options.rounds or (min(QUICK_ROUNDS, item.rounds) if options.quick else item.rounds)
            say(f"{item.key}: {rounds} rounds")
            collected = measure(bench, item, rounds, item.warmup_rounds)
            if not collected:
                say(f"  nobody takes part in {item.key} with these peers")
                continue
            date = datetime.now(UTC).date().isoformat()
            result = Result(item.key, date, scale, versions, machine.description(), collected)
            results.save(result)


def main(command_line: list[str] | None = None) -> int:
    options = arguments(command_line)
    # As an exception, so that brokers are stopped and their data is removed on the way out.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        if not options.report_only:
            run(options)
    except (PeerError, load.LoadError, KafkaException, TimeoutError) as error:
        print(error, file=sys.stderr)
        return 1
    shrunken = options.quick or (options.scale or 1) < 1
    found = results.load_all(shrunken=shrunken)
    asked_for = {item.key for item in chosen(options.part, quick=options.quick)}
    say("\n" + report.tables({key: result for key, result in found.items() if key in asked_for}))
    if shrunken or not report.complete(found):
        say("docs/benchmarks.md is left as it was: it takes full-size results of all contenders")
    else:
        say(f"written: {', '.join(report.write(found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
