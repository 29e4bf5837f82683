"""The alert rules and the dashboard ask for what a broker serves, and lead to pages that are there."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Producer
from tests.integration.pages import anchors
from tools.dashboard import dashboard_page

from penstock.cli.main import COMMANDS
from penstock.testing import broker

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "packaging" / "prometheus" / "penstock-alerts.yml"
PROMETHEUS = ROOT / "packaging" / "prometheus" / "prometheus.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "penstock.json"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in PANELS for target in panel["targets"]
]
# What Prometheus knows by itself.
OWN_METRICS = {"up"}
OWN_LABELS = {"job", "instance", "cluster", "broker", "le"}


class Served:
    """A page of /metrics: the names of all samples, and the labels of each."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, set[str]] = {}
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            self.labels |= {name + ending: set() for ending in endings}
        for name, labels in re.findall(r"^([a-z_]+)\{(.*)\} ", text, re.MULTILINE):
            self.labels.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
        self.pairs = set(re.findall(r'\w+="[^"]*"', text))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with broker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("watched", b"value")
        assert producer.flush(30) == 0
        with urlopen(f"{running.console_url}/metrics") as page:
            yield Served(page.read().decode())


def selectors(query: str) -> list[tuple[str, str]]:
    """Of `sum by (x) (rate(name{label="value"}[5m]))`: name and what is between the braces."""
    without_grouping = re.sub(r"\bby \([^)]*\)", "", query)
    return re.findall(
        r"\b([a-z][a-z0-9_]*)\b(?!\s*\()(?:\{([^}]*)\})?", re.sub(r"\[[^\]]*\]", "", without_grouping)
    )


@pytest.mark.parametrize("query", QUERIES)
def test_every_metric_is_served(served: Served, query: str) -> None:
    asked = [(name, chosen) for name, chosen in selectors(query) if name != "and"]
    assert asked
    for name, chosen in asked:
        assert name in served.labels or name in OWN_METRICS, f"{name} is served by no broker"
        for label, sign, value in re.findall(r'(\w+)(=~?)"([^"]*)"', chosen):
            assert label in OWN_LABELS | served.labels.get(name, set()), f"{name} has no label {label}"
            if label not in OWN_LABELS and sign == "=":
                assert f'{label}="{value}"' in served.pairs, f"{name} never has {label}={value}"


def test_the_query_is_taken_apart_as_meant() -> None:
    query = 'sum by (a) (rate(x_total{b="c"}[5m])) / y > 0.5'
    assert selectors(query) == [("x_total", 'b="c"'), ("y", "")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    said = rule["annotations"]
    assert said["summary"]
    page, _, anchor = said["page"].partition("#")
    assert anchor in anchors((ROOT / page).read_text()), f"{page} has no section {anchor}"
    words = said["command"].split()
    assert words[0] == "penstock"
    assert words[1] in COMMANDS


def test_names_of_alerts_and_places_of_panels_are_their_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_dashboard_is_fresh() -> None:
    assert DASHBOARD.read_text() == dashboard_page(), "run: make docs"


def test_prometheus_scrapes_under_the_name_that_the_rules_know() -> None:
    config = yaml.safe_load(PROMETHEUS.read_text())
    assert config["rule_files"] == [ALERTS.name]
    (scrape,) = config["scrape_configs"]
    assert f'job="{scrape["job_name"]}"' in ALERTS.read_text()
    if promtool := shutil.which("promtool"):
        subprocess.run([promtool, "check", "rules", str(ALERTS)], check=True)
        subprocess.run([promtool, "check", "config", "--syntax-only", str(PROMETHEUS)], check=True)
