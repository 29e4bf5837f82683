"""Log lines into a row per minute and service: how many, how many of them failed, how slow.

    penstock pipeline run examples/log_aggregation.py --from logs --to log-minutes --checkpoint /var/lib/logs --once

A line is a time, a service, a status and milliseconds: `2025-01-31T12:00:03Z shop 200 12`. What does not look like
that is counted under the service `unreadable`, in the minute in which it arrived: a change of format must not go
unnoticed. A minute is final when lines are there that are `--late` younger; lines later than that are left out.
"""

import argparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program has for it

LINE = r"^(\S+) (\S+) (\d{3}) (\d+)$"


def part(number: int) -> Column:
    """A part of the line, null where the line is another."""
    return F.nullif(F.regexp_extract("line", LINE, number), F.lit(""))


def minutes(lines: DataFrame, late: str) -> DataFrame:
    """`lines` as the source gives them, to one row per minute and service as a sink takes it."""
    read = lines.select(F.col("value").cast("string").alias("line"), "timestamp").select(
        F.coalesce(part(1).try_cast("timestamp"), "timestamp").alias("at"),
        F.coalesce(part(2), F.lit("unreadable")).alias("service"),
        part(3).cast("int").alias("status"),
        part(4).cast("int").alias("milliseconds"),
    )
    counted = (
        read.withWatermark("at", late)
        .groupBy(F.window("at", "1 minute"), "service")
        .agg(
            F.count("*").alias("lines"),
            F.count_if(F.col("status") >= 500).alias("failed"),
            F.percentile_approx("milliseconds", 0.95).alias("p95_milliseconds"),
        )
    )
    row = F.struct(
        F.date_format(
            F.to_utc_timestamp("window.start", F.current_timezone()), "yyyy-MM-dd'T'HH:mm'Z'"
        ).alias("minute"),
        "service",
        "lines",
        "failed",
        "p95_milliseconds",
    )
    return counted.select(F.col("service").alias("key"), F.to_json(row).alias("value"))


def main(spark: SparkSession, bootstrap: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--from", dest="source", required=True, metavar="TOPIC", help="the topic of log lines"
    )
    parser.add_argument("--to", required=True, metavar="TOPIC", help="the topic of counts; it must be there")
    parser.add_argument(
        "--checkpoint", required=True, metavar="URI", help="where the job remembers how far it is"
    )
    parser.add_argument("--late", default="1 minute", help="how late a line may come")
    parser.add_argument("--once", action="store_true", help="take what is there now, then end")
    given = parser.parse_args()

    lines = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        minutes(lines, given.late)
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", given.to)
        .option("checkpointLocation", given.checkpoint)
        .outputMode("append")
        .trigger(**({"availableNow": True} if given.once else {"processingTime": "10 seconds"}))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(spark, bootstrap)  # noqa: F821 - both are there when `penstock pipeline run` starts the job
