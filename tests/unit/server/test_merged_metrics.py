"""Metrics of several workers as one page."""

from prometheus_client.parser import text_string_to_metric_families

from penstock.server.merged_metrics import labelled, merged_metrics

PAGE = """\
# HELP penstock_connections Open client connections.
# TYPE penstock_connections gauge
penstock_connections {connections}
# HELP penstock_request_seconds Requests.
# TYPE penstock_request_seconds histogram
penstock_request_seconds_bucket{{api="fetch",le="0.1"}} 3.0
penstock_request_seconds_count{{api="fetch"}} 3.0
penstock_request_seconds_sum{{api="fetch"}} 0.2
# HELP penstock_log_size_bytes Bytes.
# TYPE penstock_log_size_bytes gauge
penstock_log_size_bytes{{topic="a b{{}}",partition="0"}} 10.0
"""


def test_a_label_more() -> None:
    assert labelled("up 1", 7) == 'up{broker="7"} 1'
    assert labelled('up{a="{ }"} 1', 7) == 'up{broker="7",a="{ }"} 1'


def test_families_are_named_once_and_samples_stand_together() -> None:
    page = merged_metrics({1: PAGE.format(connections=5), 2: PAGE.format(connections=6)})
    assert page.count("# TYPE penstock_connections gauge") == 1
    families = {family.name: family for family in text_string_to_metric_families(page)}
    found = {sample.labels["broker"]: sample.value for sample in families["penstock_connections"].samples}
    assert found == {"1": 5, "2": 6}
    histogram = families["penstock_request_seconds"]
    assert histogram.type == "histogram"
    assert len(histogram.samples) == 6
    topics = [sample.labels for sample in families["penstock_log_size_bytes"].samples]
    assert topics[1] == {"broker": "2", "topic": "a b{}", "partition": "0"}


def test_nothing_from_nobody() -> None:
    assert merged_metrics({}) == ""
