"""A plugin of pytest, for `make clients`: writes down for which clients and frameworks all tests passed.

A row counts when every test that is marked with its name passed, but for what the library cannot do (skipped); it is
taken out when one failed. Where some were not selected, or not the whole of tests/clients was to be run, nothing is
known, and what was known stays.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tools import ecosystem
from tools.peers import maven

if TYPE_CHECKING:
    from collections.abc import Iterable


def version_of(source: str) -> str:
    """The version that is tested, from where ecosystem.toml says."""
    kind, *place = source.split()
    if kind == "pip" and len(place) == 1:
        return installed(place[0])
    if kind == "command":
        done = subprocess.run(place, capture_output=True, text=True, check=False)
        return re.findall(r"\d+(?:\.\d+)+", done.stdout + done.stderr)[0]
    file = ecosystem.ROOT / place[0]
    if kind == "maven":
        return maven.pinned(file, place[1])
    text = file.read_text()
    if kind == "npm":
        pinned: str = json.loads(text)["dependencies"][place[1]]
        return pinned
    name = re.escape(place[1])
    between = r"(?:\[.*\])?==" if kind == "pip" else " v"
    found = re.search(rf"^\s*{name}{between}(\S+)", text, re.MULTILINE)
    assert found is not None, f"no version of {place[1]} in {place[0]}"
    return found[1]


def names_of(item: pytest.Item) -> set[str]:
    return {mark.args[0] for mark in item.iter_markers("ecosystem")}


class Recorder:
    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._names: dict[str, set[str]] = {}  # by test
        self._left_out: set[str] = set()
        self._failed: set[str] = set()
        self._passed: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        known = {row["name"] for row in ecosystem.rows()}
        self._names = {item.nodeid: names_of(item) for item in session.items}
        unknown = set().union(*self._names.values()) - known
        if unknown:
            raise pytest.UsageError(f"not in {ecosystem.ROWS.name}: {', '.join(sorted(unknown))}")

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self._left_out.update(*map(names_of, items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = self._names.get(report.nodeid, set())
        if report.failed:
            self._failed |= names
        elif report.when == "call" and report.passed:
            self._passed.update(names)

    def pytest_sessionfinish(self) -> None:
        record(self._passed if self._whole else Counter(), self._failed, self._left_out)


def record(passed: Counter[str], failed: set[str], left_out: set[str]) -> None:
    found = {name: entry for name, entry in ecosystem.passed().items() if name not in failed}
    for row in ecosystem.rows():
        name = row["name"]
        if passed[name] and name not in failed | left_out:
            found[name] = {"version": version_of(row["version"]), "tests": passed[name]}
    ordered = {row["name"]: found[row["name"]] for row in ecosystem.rows() if row["name"] in found}
    Path(ecosystem.PASSED).write_text(json.dumps(ordered, indent=2) + "\n")
    Path(ecosystem.PAGE).write_text(ecosystem.page())


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(whole="tests/clients" in config.args), "ecosystem-recorder")
