"""kafka-python's own integration tests, from its source distribution, against a running broker."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from tools.peers import PeerError, PenstockPeer
from tools.peers.maven import cache_dir

HERE = Path(__file__).parent
PASSING = HERE / "passing.txt"
FAILING = HERE / "failing.toml"
# What the tests take the broker for.
KAFKA_VERSION = "4.3"


@dataclass
class Outcome:
    passed: set[str] = field(default_factory=set)
    # Each with the last line of what went wrong.
    failed: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)


def passing() -> set[str]:
    return set(PASSING.read_text().split())


def failing() -> dict[str, str]:
    """The tests that are known to fail, with the reason of each."""
    entries = tomllib.loads(FAILING.read_text())["failing"]
    return {test: entry["reason"] for entry in entries for test in entry["tests"]}


def broker() -> PenstockPeer:
    """Set up as the tests expect of theirs: broker 0, told what to advertise, quick with groups."""
    peer = PenstockPeer(
        {"node.id": 0, "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    )
    peer.settings["advertised.listeners"] = f"PLAINTEXT://{peer.bootstrap}"
    return peer


def run(peer: PenstockPeer, work_dir: Path) -> Outcome:
    shutil.copytree(_distribution() / "test", work_dir / "test")
    (work_dir / "test" / "__init__.py").touch()
    shutil.copy(HERE / "service.py", work_dir / "test" / "service.py")
    report = work_dir / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--timeout=120",
    ]
    command += ["-W", "ignore", "--rootdir", str(work_dir), "-c", os.devnull, f"--junitxml={report}"]
    environment = {
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{peer.bootstrap}",
        "KAFKA_ROOT": str(work_dir),
        "PYTHONPATH": os.pathsep.join([str(work_dir), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [*command, "test/integration"],
        cwd=work_dir,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise PeerError(f"kafka-python's tests did not run:\n{done.stdout}{done.stderr}")
    return _read(report)


def _distribution() -> Path:
    """The unpacked source distribution of the kafka-python that is installed here; fetched on first use."""
    version = importlib.metadata.version("kafka-python")
    target = cache_dir() / f"kafka_python-{version}"
    if not target.exists():
        cache_dir().mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", str(cache_dir()), f"kafka-python=={version}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerError(f"pip could not download kafka-python {version}: {done.stderr}")
        with tarfile.open(target.with_name(f"{target.name}.tar.gz")) as archive:
            archive.extractall(cache_dir(), filter="data")
    return target


def _read(report: Path) -> Outcome:
    outcome = Outcome()
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('test.integration.')}::{case.get('name')}"
        problem = case.find("failure")
        if problem is None:
            problem = case.find("error")
        if problem is not None:
            outcome.failed[name] = (problem.get("message") or "").strip().splitlines()[0][:200]
        elif case.find("skipped") is not None:
            outcome.skipped.add(name)
        else:
            outcome.passed.add(name)
    return outcome
