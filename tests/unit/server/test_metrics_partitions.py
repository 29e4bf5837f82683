"""The metrics of partitions, written by hand, read as the client library writes them."""

import asyncio
from types import SimpleNamespace

from prometheus_client.parser import text_string_to_metric_families

from penstock.server.metrics_partitions import render


def partition(index: int) -> SimpleNamespace:
    log = SimpleNamespace(size_bytes=10 * index, start_offset=1, end_offset=index, unsynced_bytes=0)
    return SimpleNamespace(topic="a.b_c-D", index=index, log=log, high_watermark=index)


def test_every_partition_is_in_every_family() -> None:
    page = asyncio.run(render(partition(index) for index in range(1000)))  # type: ignore[misc]
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    assert sorted(families) == [
        "penstock_high_watermark",
        "penstock_log_end_offset",
        "penstock_log_size_bytes",
        "penstock_log_start_offset",
        "penstock_log_unsynced_bytes",
    ]
    for family in families.values():
        assert (family.type, len(family.samples)) == ("gauge", 1000)
    sample = families["penstock_log_size_bytes"].samples[999]
    assert (sample.labels, sample.value) == ({"topic": "a.b_c-D", "partition": "999"}, 9990)
