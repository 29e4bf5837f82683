"""Spark sessions that are ready for the data source."""

import os
import sys
from typing import TYPE_CHECKING

from penstock.spark.checks import require_java, require_penstock_in, require_pyspark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# What a session gets unless it says otherwise. The time zone is not among them: it is the user's.
DEFAULTS: dict[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Python workers and the JVM are on one machine, where these are faster than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Only for `local…` masters: a driver that a cluster's workers must reach has to bind to a real address.
LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
LOG_LEVEL = "ERROR"


def session(
    name: str = "penstock",
    *,
    master: str = "local[*]",
    config: "Mapping[str, str] | None" = None,
    log_level: str = LOG_LEVEL,
) -> "SparkSession":
    """A session (or the running one) with the source found and sane defaults; `config` outranks them."""
    require_pyspark()
    require_java()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second, and only sessions need it

    if sys.executable:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = DEFAULTS | (LOCAL_DEFAULTS if master.startswith("local") else {}) | dict(config or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(log_level)
    return spark


def register(spark: "SparkSession") -> None:
    """Make `format("penstock")` known to a session that does not find it by itself."""
    require_pyspark()
    from penstock.spark.source import PenstockSource  # noqa: PLC0415 - needs PySpark

    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is not None:
        require_penstock_in(
            context.getConf().get("spark.pyspark.python") or context.pythonExec, sys.executable
        )
    spark.dataSource.register(PenstockSource)
