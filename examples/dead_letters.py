"""Dead letters by what went wrong: how many, from which topic, since when, and one of them to look at.

    penstock pipeline run examples/dead_letters.py --from orders.dead-letters

Where a letter comes from and why it is dead stand in its headers; those of Kafka Connect unless told otherwise. Errors
that differ only in numbers are the same one. Nothing is changed and nothing committed: run it as often as you like.
"""

import argparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark program has for it


def header(name: str) -> Column:
    """The last header of that name: whoever passed the letter on last knows best."""
    values = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(values, F.lit(-1))["value"].cast("string")


def kinds(letters: DataFrame, origin_header: str, error_header: str) -> DataFrame:
    """One row per topic and kind of error, the most frequent first."""
    read = letters.select(
        F.coalesce(header(origin_header), F.lit("unknown")).alias("origin"),
        F.regexp_replace(F.coalesce(header(error_header), F.lit("unknown")), r"\d+", "N").alias("error"),
        "timestamp",
        F.concat_ws(":", "partition", "offset").alias("place"),
        F.col("value").cast("string").alias("value"),
    )
    newest = F.max_by(F.struct("place", "value"), "timestamp")
    return (
        read.groupBy("origin", "error")
        .agg(
            F.count("*").alias("letters"),
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
            newest.alias("newest"),
        )
        .select("origin", "error", "letters", "first", "last", "newest.*")
        .orderBy(F.desc("letters"), "origin", "error")
    )


def main(spark: SparkSession, bootstrap: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the dead letters")
    parser.add_argument("--origin-header", default="__connect.errors.topic", metavar="NAME")
    parser.add_argument("--error-header", default="__connect.errors.exception.message", metavar="NAME")
    parser.add_argument("--to", metavar="URI", help="a folder for the result, as JSON; else it is printed")
    given = parser.parse_args()

    letters = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", given.source)
        .option("includeHeaders", "true")
        .load()
    )
    found = kinds(letters, given.origin_header, given.error_header)
    if given.to is None:
        found.show(100, truncate=60)
    else:
        found.coalesce(1).write.mode("overwrite").json(given.to)


if __name__ == "__main__":
    main(spark, bootstrap)  # noqa: F821 - both are there when `penstock pipeline run` starts the job
