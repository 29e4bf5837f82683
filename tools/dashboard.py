"""The Grafana dashboard as a table of panels; `python tools/gen_docs.py dashboard` writes it out.

A panel is its title, its unit, and what it shows: PromQL, with the label that names a line. `$cluster` is what is
chosen at the top of the page. Hand-made dashboards drift from the metrics; this one is checked against them.
"""

import json
from itertools import count
from typing import Any, NamedTuple

_WIDTH = 24
_HEIGHT = 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HERE = 'cluster=~"$cluster"'


class Panel(NamedTuple):
    title: str
    unit: str
    queries: dict[str, str]  # legend to PromQL
    kind: str = "timeseries"


def _p99(metric: str, extra: str = "") -> str:
    rate = f"rate({metric}_bucket{{{_HERE}{extra}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by (instance, broker, le) ({rate}))"


def _rate(metric: str, by: str = "instance, broker") -> str:
    return f"sum by ({by}) (rate({metric}{{{_HERE}}}[$__rate_interval]))"


def _sum(metric: str) -> str:
    return f"sum({metric}{{{_HERE}}})"


_LINE = "{{instance}} {{broker}}"
ROWS: dict[str, list[Panel]] = {
    "At a glance": [
        Panel("Brokers", "none", {"brokers": f"count(penstock_active_controller{{{_HERE}}})"}, "stat"),
        Panel("Controllers: 1", "none", {"controllers": _sum("penstock_active_controller")}, "stat"),
        Panel("Without a leader: 0", "none", {"partitions": _sum("penstock_offline_partitions")}, "stat"),
        Panel(
            "Refuse acks=all: 0", "none", {"partitions": _sum("penstock_under_min_isr_partitions")}, "stat"
        ),
        Panel("Lack copies: 0", "none", {"partitions": _sum("penstock_under_replicated_partitions")}, "stat"),
        Panel("Replicas offline: 0", "none", {"replicas": _sum("penstock_offline_replicas")}, "stat"),
    ],
    "Traffic": [
        Panel("Messages in", "cps", {_LINE: _rate("penstock_messages_in_total")}),
        Panel("Bytes in", "Bps", {_LINE: _rate("penstock_received_bytes_total")}),
        Panel("Bytes out", "Bps", {_LINE: _rate("penstock_sent_bytes_total")}),
        Panel("Requests", "reqps", {"{{api}}": _rate("penstock_request_seconds_count", "api")}),
        Panel("Produce, p99", "s", {_LINE: _p99("penstock_request_seconds", ',api="produce"')}),
        Panel("Connections", "none", {_LINE: f"penstock_connections{{{_HERE}}}"}),
    ],
    "Brokers": [
        Panel("Event loop late, p99 (below 50 ms)", "s", {_LINE: _p99("penstock_event_loop_lag_seconds")}),
        Panel("… by its own work, p99", "s", {_LINE: _p99("penstock_event_loop_occupied_seconds")}),
        Panel("CPU", "percentunit", {_LINE: _rate("process_cpu_seconds_total")}),
        Panel("Memory", "bytes", {_LINE: f"process_resident_memory_bytes{{{_HERE}}}"}),
        Panel("Open files", "none", {_LINE: f"process_open_fds{{{_HERE}}}"}),
        Panel("Requests that wait", "none", {"{{instance}} {{kind}}": f"penstock_purgatory_size{{{_HERE}}}"}),
    ],
    "Disks": [
        Panel(
            "Free",
            "percentunit",
            {_LINE: f"penstock_disk_free_bytes{{{_HERE}}} / penstock_disk_size_bytes{{{_HERE}}}"},
        ),
        Panel(
            "Largest topics",
            "bytes",
            {"{{topic}}": f"topk(10, sum by (topic) (penstock_log_size_bytes{{{_HERE}}}))"},
        ),
        Panel(
            "Not synced yet",
            "bytes",
            {_LINE: f"sum by (instance, broker) (penstock_log_unsynced_bytes{{{_HERE}}})"},
        ),
        Panel("Kept for the archive", "bytes", {"{{topic}}": f"penstock_archive_held_bytes{{{_HERE}}}"}),
        Panel(
            "Waits for compaction",
            "percentunit",
            {"{{topic}}-{{partition}}": f"topk(10, penstock_cleaner_dirty_ratio{{{_HERE}}})"},
        ),
        Panel("Freed by compaction", "Bps", {_LINE: _rate("penstock_cleaner_freed_bytes_total")}),
    ],
    "Copies": [
        Panel(
            "Slowest follower, records behind",
            "none",
            {_LINE: f"penstock_max_follower_lag_records{{{_HERE}}}"},
        ),
        Panel(
            "In-sync replicas lost and won",
            "none",
            {
                "lost by {{instance}}": f"increase(penstock_isr_shrinks_total{{{_HERE}}}[10m])",
                "won by {{instance}}": f"increase(penstock_isr_expands_total{{{_HERE}}}[10m])",
            },
        ),
        Panel("Partitions led", "none", {_LINE: f"penstock_led_partitions{{{_HERE}}}"}),
        Panel("Replicas on the move", "none", {_LINE: f"penstock_reassigning_partitions{{{_HERE}}}"}),
        Panel("Retired, still to be moved", "none", {"{{topic}}": f"penstock_relay_lag_records{{{_HERE}}}"}),
    ],
    "Transactions": [
        Panel(
            "Ended",
            "cps",
            {
                "committed": f"sum(rate(penstock_transactions_committed_total{{{_HERE}}}[$__rate_interval]))",
                "aborted": f"sum(rate(penstock_transactions_aborted_total{{{_HERE}}}[$__rate_interval]))",
            },
        ),
        Panel("Oldest that is open", "s", {_LINE: f"penstock_oldest_transaction_seconds{{{_HERE}}}"}),
        Panel(
            "Committed readers wait for, records",
            "none",
            {_LINE: f"penstock_last_stable_offset_lag_records{{{_HERE}}}"},
        ),
    ],
    "Groups": [
        Panel("Groups", "none", {"{{state}}": f"sum by (state) (penstock_groups{{{_HERE}}})"}),
        Panel("Commits", "cps", {_LINE: _rate("penstock_offset_commits_total")}),
        Panel("Out of service: 0", "none", {_LINE: f"penstock_groups_unavailable_partitions{{{_HERE}}}"}),
    ],
}


def dashboard_page() -> str:
    numbers, panels, y = count(1), [], 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        row_panel = {"type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}
        panels.append({"id": next(numbers)} | row_panel)
        y += 1
        # Figures are small, and all in one line; curves are three in a line.
        across = len(row) if row[0].kind == "stat" else 3
        height = _HEIGHT // 2 if row[0].kind == "stat" else _HEIGHT
        width = _WIDTH // across
        for at, panel in enumerate(row):
            place = {"x": at % across * width, "y": y + at // across * height, "w": width, "h": height}
            panels.append({"id": next(numbers), "gridPos": place} | _panel(panel))
        y += -(-len(row) // across) * height
    return json.dumps(_frame(panels), indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    defaults = {"unit": panel.unit, "min": 0}
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }


def _frame(panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    cluster = {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(penstock_active_controller, cluster)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": "penstock",
        "title": "Penstock",
        "tags": ["penstock"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, cluster]},
        "panels": panels,
    }
