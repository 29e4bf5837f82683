"""Where PySpark finds the data source `penstock`: it looks for `DefaultSource` in top-level modules `pyspark_…`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
