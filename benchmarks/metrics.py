"""Reads figures out of a Prometheus text page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def histogram_quantile(page: str, name: str, quantile: float) -> float:
    """The upper bound of the bucket in which the quantile lies: never better than the truth."""
    for family in text_string_to_metric_families(page):
        if family.name != name:
            continue
        buckets = sorted(
            (float(sample.labels["le"]), sample.value)
            for sample in family.samples
            if sample.name == f"{name}_bucket"
        )
        total = buckets[-1][1] if buckets else 0
        if total == 0:
            raise ValueError(f"the histogram {name} has no observations")
        return next(bound for bound, count in buckets if count >= quantile * total)
    raise ValueError(f"no histogram {name} on the metrics page")
