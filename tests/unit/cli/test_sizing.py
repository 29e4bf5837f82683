"""`penstock plan`: its figures are those that were measured, and more load never needs less."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import sizing
from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_count
from penstock.cli.sizing import Figure, Load, Machine, make_plan
from penstock.records.batch import HEADER_BYTES

BENCHMARKS = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
FIGURES = {name: value for name, value in vars(sizing).items() if isinstance(value, Figure)}
DAY = 86_400
SMALL = Load(messages_per_second=50_000, message_bytes=1000, retention_seconds=14 * DAY)


def measured(row: str) -> float:
    """The first number of a row of the page."""
    rest = BENCHMARKS
    for part in row.split(" > "):
        found = re.search(rf"^\| {re.escape(part)} \| ([\d,.]+)", rest, re.MULTILINE)
        assert found, f"docs/benchmarks.md has no row {part!r}"
        rest = rest[found.end() :]
    return float(found[1].replace(",", ""))


@pytest.mark.parametrize("name", FIGURES)
def test_it_goes_by_what_was_measured(name: str) -> None:
    """Give or take a third, as runs of the benchmark differ; when this fails, take over what the page says now."""
    figure = FIGURES[name]
    assert figure.value == pytest.approx(measured(figure.row), rel=1 / 3)


def test_the_header_of_a_batch_is_as_large_as_it_is() -> None:
    assert sizing.BATCH_HEADER_BYTES == HEADER_BYTES


def test_a_small_load_needs_one_machine_for_each_copy() -> None:
    plan = make_plan(SMALL, Machine())
    assert (plan.machines, plan.limited_by, plan.brokers_per_machine) == (3, "copies", 1)
    # 50 MB/s for two weeks are 61 TB, of which each machine has a copy.
    assert plan.disk_bytes * sizing.FILL_SHARE == pytest.approx(61e12, rel=0.05)
    assert make_plan(replace(SMALL, replicas=1), Machine()).machines == 1


def test_what_runs_short_decides() -> None:
    slow_network = make_plan(SMALL, Machine(network_bytes_per_second=12.5e6))
    assert slow_network.limited_by == "network"
    small_disks = make_plan(SMALL, Machine(disk_bytes=2e12))
    assert small_disks.limited_by == "disk space"
    assert small_disks.disk_bytes <= 2e12
    slow_disks = make_plan(SMALL, Machine(disk_bytes_per_second=20e6))
    assert slow_disks.limited_by == "disk speed"
    one_by_one = make_plan(replace(SMALL, messages_per_second=5e6, batch_bytes=1), Machine(cores=2))
    assert one_by_one.limited_by == "cores", "a request for each message is what costs the broker"


def test_one_machine_may_be_lost() -> None:
    plan = make_plan(replace(SMALL, messages_per_second=2e6), Machine())
    left = plan.machines - 1
    assert plan.cores_busy <= left * plan.brokers_per_machine * sizing.USABLE_SHARE
    written = plan.load.bytes_per_second * plan.load.replicas
    assert written <= left * sizing.DISK_MB_PER_SECOND.value * 1e6 * sizing.USABLE_SHARE


LOADS = st.builds(
    Load,
    messages_per_second=st.floats(1, 1e8),
    message_bytes=st.integers(1, 1_000_000),
    retention_seconds=st.integers(1, 400 * DAY),
    replicas=st.integers(1, 5),
    groups=st.integers(0, 20),
    batch_bytes=st.integers(1, 1_000_000),
    compression=st.floats(1, 20),
)


@given(LOADS, st.sampled_from(["messages_per_second", "retention_seconds", "groups", "replicas"]))
def test_more_load_never_needs_less(load: Load, what: str) -> None:
    machine = Machine(disk_bytes=10e12)
    before = make_plan(load, machine)
    after = make_plan(replace(load, **{what: getattr(load, what) + 1}), machine)
    assert after.machines >= before.machines
    assert after.cores_busy >= before.cores_busy
    assert after.machines >= after.load.replicas
    assert before.brokers_per_machine <= machine.cores


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [("500", "", 500), ("20k", "", 20_000), ("1.5M", "", 1.5e6), ("10Gbit", "bit", 1e10)],
)
def test_numbers_as_people_write_them(text: str, unit: str, number: float) -> None:
    assert parse_count("--rate", text, unit) == number


@pytest.mark.parametrize("text", ["", "0", "k", "-1", "1e9", "10bit", "1,000"])
def test_what_is_no_number_is_wrong_use(text: str) -> None:
    with pytest.raises(WrongUseError, match="--rate"):
        parse_count("--rate", text)
