"""Penstock and Apache Spark: the data source `penstock`, and sessions that are ready for it.

    spark = penstock.spark.session("orders")
    spark.readStream.format("penstock").option("kafka.bootstrap.servers", "localhost:9092")…

PySpark finds the source by itself through the top-level module `pyspark_penstock`; `register` is for
sessions that look elsewhere. Importing this package needs neither PySpark nor Java: what needs them
says so, in one line, when it is called. It tells Spark which Python to run (PYSPARK_PYTHON), where nobody
has: import it before the session is made.
"""

import os
import sys

from penstock.spark.checks import prefer_own_python
from penstock.spark.errors import (
    DataLossError,
    JavaMissingError,
    OptionError,
    PySparkVersionError,
    SchemaError,
    SparkSourceError,
    WorkerPythonError,
    reason,
)
from penstock.spark.session import register, session

__all__ = [
    "DataLossError",
    "JavaMissingError",
    "OptionError",
    "PySparkVersionError",
    "SchemaError",
    "SparkSourceError",
    "WorkerPythonError",
    "reason",
    "register",
    "session",
]

prefer_own_python(os.environ, sys.executable)
