"""What can go wrong between Spark and a broker, and how to get the one line that matters out of Spark.

Errors of a Python data source reach the user as a Java exception whose text ends in a Python traceback:
`reason` finds the sentence in it that says what to do next.
"""

import re

from penstock.core.errors import PenstockError


class SparkSourceError(PenstockError):
    """Root of what the data source raises on purpose."""


class OptionError(SparkSourceError):
    """An option that is unknown, contradictory or has a value that means nothing."""


class SchemaError(SparkSourceError):
    """Columns that the source does not have, or that the sink cannot write."""


class DataLossError(SparkSourceError):
    """Records that were asked for are gone, and `failOnDataLoss` says that this must not pass silently."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Set failOnDataLoss=false to go on with what is left")


class HoleError(DataLossError):
    """A log has no records for offsets between others that it has, and nothing compacts it."""


class PySparkVersionError(SparkSourceError):
    """PySpark is missing, or older than the data source API that this is built on."""


class JavaMissingError(SparkSourceError):
    """Spark runs on Java, and there is none to be found."""


class WorkerPythonError(SparkSourceError):
    """Spark runs a Python that has no Penstock."""


# The last line of a Python traceback: a dotted class name of ours, then the message up to the end of its line.
_OURS = re.compile(r"^\s*(?:[\w.]*:\s*)?penstock\.[\w.]+: (?P<message>.+)$", re.MULTILINE)


def reason(error: BaseException) -> str:
    """The sentence of ours inside what Spark raised; the first line of Spark's own when there is none."""
    if isinstance(error, PenstockError):
        return str(error)
    text = str(error)
    found = [match["message"].strip() for match in _OURS.finditer(text)]
    if found:
        return found[-1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
