"""What Spark and Hadoop raise, in one line that says what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.raw import TopicPartition
from penstock.core.errors import PenstockError
from penstock.spark.errors import reason
from penstock.spark.pipelines.archive.errors import ArchiveError, CorruptFileError, LakeError, LakeFullError

_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|DSQuotaExceeded|QuotaExceeded"
)
# Where Spark keeps rows that do not fit into memory: its own folder, not the lake.
_SPILL = re.compile(r"SpillWriter|DiskBlockObjectWriter|DiskStore|ExternalSorter|spark\.storage\.")
_LOST = re.compile(r"penstock\.spark\.errors\.DataLossError: (?P<what>.+)")
_HOLE = re.compile(
    r"penstock\.spark\.errors\.HoleError: (?P<what>(?P<topic>\S+)-(?P<partition>\d+) has no records .+?)"
    r"\. Set failOnDataLoss"
)
# A topic or a partition that was there when the round was planned.
_GONE = re.compile(
    r"penstock\.client\.raw\.errors\.Unknown(?:Topic|Partition)Error: (?P<topic>.+)"
    r"|penstock\.spark\.errors\.OptionError: (?P<partition>assign names .+)"
)
# Spark names the file that it could not read; what is wrong with it stands further down, in the cause.
_UNREADABLE = re.compile(r"FAILED_READ_FILE[^\]]*\] Encountered error while reading file (?P<file>\S+?)\.? ")
_MISSING = re.compile(r"FILE_NOT_EXIST|FileNotFoundException")
# A task that waited for a broker until it had no more time, or a plan for which nobody was there: before anything else,
# the source asks whether somebody listens at all, as the SDK does.
_BROKER = re.compile(
    r"penstock\.client\.(?:raw\.)?errors\.(?:TimedOut|Unreachable|ConnectionLost)Error: (?P<message>.+)"
)
_NO_SCHEME = re.compile(r'No FileSystem for scheme "?(?P<scheme>[\w+.-]+)"?')
_NO_CLASS = re.compile(r"Class (?P<name>org\.apache\.hadoop\.fs\.s3a?\S+) not found|NoClassDefFoundError")
_UNREACHABLE = re.compile(
    r"UnknownHostException: (?P<host>\S+)|Connection refused|NoRouteToHost|ConnectTimeout|SocketTimeout"
)


class ReadLostError(ArchiveError):
    """Records went away between the plan of a round and its reading: plan again."""


class HoleFoundError(ReadLostError):
    """A log has no records for offsets between others that it has: found by the task that read it."""

    def __init__(self, at: TopicPartition, what: str) -> None:
        super().__init__(what)
        self.at = at


class BrokerLostError(ArchiveError):
    """The broker went away while a round was read: it can be tried again when it is back."""


@contextmanager
def spark_errors(lake_uri: str) -> Iterator[None]:
    """Around anything that asks the JVM: whatever it raises becomes an error of ours."""
    try:
        yield
    except (PenstockError, FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        raise explained(error, lake_uri) from error


def explained(error: Exception, lake_uri: str) -> PenstockError:
    text = _text(error)
    hole = _HOLE.search(text)
    if hole:
        return HoleFoundError(TopicPartition(hole["topic"], int(hole["partition"])), hole["what"])
    lost = _LOST.search(text)
    if lost:
        return ReadLostError(lost["what"].strip())
    gone = _GONE.search(text)
    if gone:
        return ReadLostError((gone["topic"] or gone["partition"]).strip())
    full = _FULL.search(text)
    if full and _SPILL.search(text):
        return ArchiveError(
            f"no space is left where Spark sorts ({full[0]}): nothing of this round was archived; name another folder "
            "with --conf spark.local.dir=FOLDER and run the same command again"
        )
    if full:
        return LakeFullError(lake_uri, full[0])
    broker = _BROKER.search(text)
    if broker:
        return BrokerLostError(broker["message"].strip())
    unreadable = _UNREADABLE.search(text)
    if unreadable:
        why = "is missing" if _MISSING.search(text) else "is damaged"
        return CorruptFileError(unreadable["file"], why)
    return _about_the_uri(text, lake_uri) or ArchiveError(f"Spark could not do it: {reason(error)}")


def _about_the_uri(text: str, lake_uri: str) -> LakeError | None:
    scheme = _NO_SCHEME.search(text)
    if scheme:
        return LakeError(
            f"{lake_uri}: Spark knows no file system {scheme['scheme']}:; give a folder, hdfs://HOST/PATH or "
            "s3a://BUCKET/PATH"
        )
    if _NO_CLASS.search(text):
        return LakeError(
            f"{lake_uri} needs a jar that does not come with PySpark: add --conf "
            "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, with the version of Hadoop that Spark has"
        )
    if _UNREACHABLE.search(text):
        return LakeError(f"{lake_uri} cannot be reached ({_UNREACHABLE.search(text)[0]}): check the URI")  # type: ignore[index]
    if "Permission denied" in text or "AccessControlException" in text:
        return LakeError(f"{lake_uri} may not be written: ask for the right to, or choose another place")
    return None


def _text(error: Exception) -> str:
    """With the causes: PySpark shows the first line of a Java exception and keeps the rest for itself."""
    parts = [str(error)]
    java = getattr(error, "java_exception", None)
    if java is not None:
        parts.append(str(java.toString()))
    trace = getattr(error, "getStackTrace", None)
    if callable(trace):
        parts.append(str(trace()))
    cause = error.__cause__
    while cause is not None:
        parts.append(str(cause))
        cause = cause.__cause__
    return "\n".join(parts)
