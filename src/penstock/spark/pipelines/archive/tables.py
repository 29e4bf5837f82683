"""How archived records look in Parquet, and the session settings that reading and writing them needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# What a file holds; topic, date and hour are in its path.
COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
SCHEMA = (
    "partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
FOLDERS = ("topic", "date", "hour")
ORDER = (*FOLDERS, "partition", "offset")

WRITE_OPTIONS = {
    "parquet.page.write-checksum.enabled": "true",
    # Marks and summaries that nobody reads: the manifest says what is there.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
READ_OPTIONS = {"parquet.page.verify-checksum.enabled": "true"}

_SETTINGS = {
    # Folders are in UTC, whatever the user's session has.
    "spark.sql.session.timeZone": "UTC",
    # Microseconds as they are: INT96, Spark's default, is deprecated everywhere else.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


def own_session(spark: "SparkSession") -> "SparkSession":
    """A session beside the user's, on the same executors, with settings that are not his."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def with_folders(frame: "DataFrame") -> "DataFrame":
    """The columns of a file and of its path, from those of the source."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    at = fn.col("timestamp")
    return frame.select(
        "topic",
        fn.to_date(at).alias("date"),
        fn.lpad(fn.hour(at).cast("string"), 2, "0").alias("hour"),
        *COLUMNS,
    )


def read_files(session: "SparkSession", urls: list[str], schema: str = SCHEMA) -> "DataFrame":
    reader = session.read.schema(schema)
    for name, value in READ_OPTIONS.items():
        reader = reader.option(name, value)
    return reader.parquet(*urls)


def fingerprint() -> "Column":
    """A number of a whole row, over every column of a file: reading it reads (and checks) every page."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 - with PySpark only

    return fn.xxhash64(*COLUMNS)
