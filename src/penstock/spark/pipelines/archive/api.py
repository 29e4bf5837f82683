"""`archive(...)`: what the command does, as a function."""

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.archive.run import Listener
    from penstock.spark.pipelines.archive.summary import Summary

# So many small files may an hour of a topic have before they are merged.
FILES_MAX = 16
# A round of this much takes a quarter of a minute on two cores: little is lost when it fails.
ROUND_BYTES = 1_000_000_000
ROUND_ROWS = 20_000_000


def archive(
    topics: str | Sequence[str] = (),
    *,
    to: str,
    bootstrap: str,
    pattern: str | None = None,
    every_s: float | None = None,
    spark: "SparkSession | None" = None,
    master: str = "local[*]",
    spark_config: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
    compression: str = "zstd",
    compact_files: int | None = FILES_MAX,
    round_bytes: int = ROUND_BYTES,
    round_rows: int = ROUND_ROWS,
    take_over: bool = False,
    listener: "Listener | None" = None,
    stop: threading.Event | None = None,
) -> "Summary":
    """Archive topics into the lake at `to`, exactly once; run it again to go on where it ended.

    Without `every_s` it ends when everything is archived that was there when it began; with it, it looks again every
    so many seconds until `stop` is set. `spark`: a session to use, which stays open; otherwise one is made for
    `master`. `compact_files`: how many small files an hour of a topic may have; None turns compaction off.
    `take_over`: let the retention of topics that wait for another lake wait for this one from now on.
    """
    # Here, not above: whoever imports the package for another pipeline has no use for librdkafka and the rest.
    from penstock.spark.pipelines.archive.run import Job, run  # noqa: PLC0415

    job = Job(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        to=to,
        bootstrap=bootstrap,
        pattern=pattern,
        every_s=every_s,
        master=master,
        spark_config=dict(spark_config or {}),
        kafka=dict(kafka or {}),
        fail_on_data_loss=fail_on_data_loss,
        compression=compression,
        compact_files=compact_files,
        round_bytes=round_bytes,
        round_rows=round_rows,
        take_over=take_over,
    )
    return run(job, spark=spark, listener=listener, stop=stop)
