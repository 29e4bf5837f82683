"""The user's own PySpark job, with a session that knows the source: `spark` and `bootstrap` are there when it starts.

    orders = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)…

The script runs as `__main__` with `sys.argv` as its own, in this process. What it raises is shown as its author
would see it under plain Python: from the script's own line on, without the frames of this module, PySpark and py4j.
"""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.progress import QueryProgress
from penstock.spark.pipelines.status import StatusFile
from penstock.spark.session import session

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

FAILED = 1
LOOK_SECONDS = 2.0
_LIBRARIES = ("pyspark", "py4j")


class ScriptError(PenstockError):
    """The script is not there, or is not one."""


def check_script(path: str) -> Path:
    """Before Spark is started, which takes seconds."""
    script = Path(path)
    if not script.is_file():
        why = "is a folder" if script.is_dir() else "does not exist"
        raise ScriptError(f"{path} {why}: name the Python file of a PySpark job")
    return script.absolute()


def run_session(script: Path, master: str, config: Mapping[str, str] | None = None) -> "SparkSession":
    """A session for this script: tasks find the modules beside it, as it does itself."""
    paths = [str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    return session(script.name, master=master, config=config)


def run(spark: "SparkSession", script: Path, arguments: Sequence[str] = (), *, bootstrap: str) -> int:
    """Run the script to its end: its exit code, or 1 with its traceback on stderr. KeyboardInterrupt passes."""
    with (
        StatusFile("run", script.name, bootstrap=bootstrap) as status,
        _watched(spark, status),
        _as_main(script, arguments),
    ):
        try:
            runpy.run_path(
                str(script), init_globals={"spark": spark, "bootstrap": bootstrap}, run_name="__main__"
            )
        except SystemExit as end:
            return _exit_code(end)
        except Exception as error:
            print(own_traceback(error, str(script)), end="", file=sys.stderr, flush=True)
            return FAILED
    return 0


@contextmanager
def _as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    before_argv, before_path = sys.argv, sys.path
    sys.argv = [str(script), *arguments]
    sys.path = [str(script.parent), *sys.path]
    try:
        yield
    finally:
        sys.argv, sys.path = before_argv, before_path


def _exit_code(end: SystemExit) -> int:
    """As the interpreter takes what `sys.exit` is given."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr, flush=True)
    return FAILED


def own_traceback(error: BaseException, script: str) -> str:
    """What Python prints, with the author's own frames only."""
    told = traceback.TracebackException.from_exception(
        error.with_traceback(_from(error.__traceback__, script))
    )
    _without_libraries(told)
    return "".join(told.format())


def _from(trace: "TracebackType | None", script: str) -> "TracebackType | None":
    """The first frame of the script and what is below; nothing where it never ran (a syntax error in it)."""
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    return trace


def _without_libraries(told: traceback.TracebackException) -> None:
    own = [frame for frame in told.stack if not _is_library(frame.filename)]
    told.stack = traceback.StackSummary.from_list(own)
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _without_libraries(other)


def _is_library(filename: str) -> bool:
    return any(part in _LIBRARIES for part in Path(filename).parts)


@contextmanager
def _watched(spark: "SparkSession", status: StatusFile) -> Iterator[None]:
    """While the script runs, a thread tells the status file how far its streaming queries are."""
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, status, done), name="pipeline status", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(spark: "SparkSession", status: StatusFile, done: threading.Event) -> None:
    seen: dict[str, QueryProgress] = {}
    while not done.wait(LOOK_SECONDS):
        rows, offsets = 0, {}
        try:
            for query in spark.streams.active:
                progress = seen.setdefault(str(query.runId), QueryProgress(query))
                rows += sum(batch["numInputRows"] for batch in progress.new_batches())
                offsets.update(progress.offsets())
        except Exception:
            # The script may stop its session at any time, and then there is nothing to ask any more.
            if done.is_set() or not _runs(spark):
                return
        status.update(
            topics=list(dict.fromkeys([*status.status.topics, *offsets])), offsets=offsets, rows=rows
        )


def _runs(spark: "SparkSession") -> bool:
    return spark.sparkContext._jsc is not None  # noqa: SLF001 - what PySpark itself asks
