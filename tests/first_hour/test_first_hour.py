"""The first hour of somebody who has the wheel and no checkout, told as a script; each step says how long it took.

`make test` runs the first minutes: install, a broker, a message, a group, retries and dead letters. `make clients` runs
the whole hour: after these a cluster on this machine that loses a broker, and Spark. Both need Java.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from tests.first_hour.stranger import ROOT, Stranger
from tests.integration.pages import blocks


@pytest.fixture
def stranger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stranger:
    return Stranger(tmp_path, capsys)


def test_the_first_minutes(stranger: Stranger) -> None:
    first_minutes(stranger)


@pytest.mark.clients
def test_the_first_hour(stranger: Stranger) -> None:
    first_minutes(stranger)
    with stranger.step("from a checkout, as docs/install.md has it"):
        install_from_a_checkout(stranger)
    with stranger.step("install what a cluster and Spark need"):
        stranger.install("[cluster,spark]")
    with stranger.step("three brokers"):
        a_cluster_loses_a_broker(stranger)
    with stranger.step("Spark"):
        spark_reads_and_writes(stranger)


def first_minutes(stranger: Stranger) -> None:
    with stranger.step("install"):
        stranger.install()
    with stranger.up() as address:
        with stranger.step("a first message"):
            stranger.penstock("topic create orders --partitions 3")
            stranger.penstock("produce orders", told="one lamp\ntwo chairs\nthree tables\n")
            assert "two chairs" in stranger.penstock("consume orders --from-beginning --max 3")

        with stranger.step("a group goes on where it was"):
            first = stranger.penstock("consume orders --group billing --from-beginning --max 2").splitlines()
            rest = stranger.penstock("consume orders --group billing --max 1").splitlines()
            assert len(first) == 2
            assert sorted(first + rest) == ["one lamp", "three tables", "two chairs"]
            assert "lag 0" in stranger.penstock("group describe billing")

        with stranger.step("retries and dead letters, as the README has them"):
            assert "billed or given up [-5, 7, 12]" in stranger.python(from_the_readme(address))
            assert "a negative amount" in stranger.penstock("dlq show payments --group billing")
            assert "1 message" in stranger.penstock("dlq replay payments --group billing")

        with stranger.step("what is wrong? nothing"):
            assert "0 under-replicated, 0 offline" in stranger.penstock("status")

    with stranger.step("an extra is missing: the error has the line that installs it"):
        alone = "broker --id 1 --listener 127.0.0.1:0 --data-dir d --zookeeper 127.0.0.1:1/none"
        said = stranger.penstock(alone, code=1).replace("\n", "")
        assert f"pip install '{stranger.wheel}[cluster]'" in said


def from_the_readme(address: str) -> str:
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"^```python sdk\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("127.0.0.1:9092", address)


def install_from_a_checkout(stranger: Stranger) -> None:
    """Its commands, in what git would have given: nothing of this checkout is touched."""
    checkout = stranger.home / "checkout"
    files = stranger.run("git", "-C", ROOT, "ls-files", "src", "pyproject.toml", "README.md", "LICENSE")
    for name in files.split():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    ((_, code),) = blocks((ROOT / "docs" / "install.md").read_text())
    *install, start = code.splitlines()
    for command in install:
        stranger.run("bash", "-ec", f"cd {checkout} && {command}")
    program, word = start.split()
    assert word == "up"
    with stranger.up(checkout / program):
        stranger.penstock("topic list")


def a_cluster_loses_a_broker(stranger: Stranger) -> None:
    started = json.loads(stranger.penstock("cluster up --base-port 0 --detach --json"))
    try:
        stranger.knows(started["bootstrap"])
        stranger.penstock("topic create parcels --partitions 6")
        stranger.penstock("produce parcels", told="".join(f"parcel {number}\n" for number in range(100)))
        os.kill(started["brokers"][1]["pid"], signal.SIGKILL)
        # Nothing is lost, and it can be written at once: two of three copies are enough.
        stranger.penstock("produce parcels", told="one more\n")
        assert len(stranger.penstock("consume parcels --from-beginning --max 101").splitlines()) == 101
        # The same command starts what is missing.
        stranger.penstock("cluster up --detach")
        stranger.penstock("status --wait")
        assert "identical" in stranger.penstock("verify parcels")
    finally:
        stranger.penstock("cluster down")


def spark_reads_and_writes(stranger: Stranger) -> None:
    with stranger.up() as address:
        stranger.penstock("produce prices", told="1\n2\n3\n")
        stranger.penstock("topic create totals --partitions 1")
        said = stranger.python(f"""
import penstock.spark

spark = penstock.spark.session("first", master="local[2]")
rows = spark.read.format("penstock").option("kafka.bootstrap.servers", "{address}")
prices = rows.option("subscribe", "prices").load()
totals = prices.selectExpr("cast(sum(cast(value as string)) as string) as value")
out = totals.write.format("penstock").option("kafka.bootstrap.servers", "{address}").option("topic", "totals")
out.mode("append").save()
print("rows", prices.count())
spark.stop()
""")
        assert "rows 3" in said
        assert "6" in stranger.penstock("consume totals --from-beginning --max 1")
