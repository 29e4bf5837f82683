"""Clicks into visits: a visit ends when its user has not clicked for half an hour.

    penstock pipeline run examples/sessionisation.py --from clicks --to /data/visits --checkpoint /data/visits-at --once

A click is JSON: `{"user": "ann", "page": "/tea", "at": "2025-01-31T12:00:00Z"}`. A visit is a row of Parquet, written
exactly once, when clicks are there that are more than the gap and `--late` younger than its last one.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program has for it

CLICK = "user STRING, page STRING, at TIMESTAMP"


def visits(clicks: DataFrame, gap: str, late: str) -> DataFrame:
    click = F.from_json(F.col("value").cast("string"), CLICK).alias("click")
    return (
        clicks.select(click)
        .select("click.*")
        .where("user IS NOT NULL AND at IS NOT NULL")
        .withWatermark("at", late)
        .groupBy("user", F.session_window("at", gap).alias("visit"))
        .agg(
            F.count("*").alias("clicks"),
            F.max("at").alias("last_click"),
            F.min_by("page", "at").alias("landed_on"),
            F.max_by("page", "at").alias("left_from"),
        )
        # The window ends a gap after the last click: nobody was there any more.
        .select("user", F.col("visit.start").alias("began"), "last_click", "clicks", "landed_on", "left_from")
    )


def main(spark: SparkSession, bootstrap: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of clicks")
    parser.add_argument("--to", required=True, metavar="URI", help="the folder of visits")
    parser.add_argument(
        "--checkpoint", required=True, metavar="URI", help="where the job remembers how far it is"
    )
    parser.add_argument("--gap", default="30 minutes", help="without a click for so long, a visit is over")
    parser.add_argument("--late", default="10 minutes", help="how late a click may come")
    parser.add_argument("--once", action="store_true", help="take what is there now, then end")
    given = parser.parse_args()

    clicks = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", given.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        visits(clicks, given.gap, given.late)
        .writeStream.format("parquet")
        .option("path", given.to)
        .option("checkpointLocation", given.checkpoint)
        .outputMode("append")
        .trigger(**({"availableNow": True} if given.once else {"processingTime": "1 minute"}))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(spark, bootstrap)  # noqa: F821 - both are there when `penstock pipeline run` starts the job
