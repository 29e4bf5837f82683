"""Pipelines on Spark: each is a command (`penstock pipeline …`) and the same as a Python function.

Importing this package needs neither PySpark nor Java.
"""

# The function takes the name of its package here; `penstock.spark.pipelines.archive.reader` and the like are still
# found, since modules are.
from penstock.spark.pipelines.archive.api import archive
from penstock.spark.pipelines.replaying.run import replay
from penstock.spark.pipelines.sql.running import sql

__all__ = ["archive", "replay", "sql"]
