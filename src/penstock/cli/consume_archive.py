"""`penstock consume --from-archive`: where its rows come from."""

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.core.distribution import install

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.pipelines.archive.lake import Lake
    from penstock.spark.pipelines.from_archive.files import Rows
    from penstock.spark.pipelines.from_archive.handover import ArchiveThenLive


@contextmanager
def archive_then_live(
    session: Session,
    uri: str,
    topic: str,
    partitions: list[int] | None,
    *,
    follow: bool,
    skip_corrupt: bool,
) -> "Iterator[ArchiveThenLive]":
    if find_spec("pyarrow") is None:
        raise CommandError(f"reading an archive needs Arrow: {install('spark')}")
    from penstock.spark.pipelines.from_archive.handover import ArchiveThenLive

    with _opened(session, uri) as (lake, rows):
        yield ArchiveThenLive(
            lake,
            rows,
            topic,
            bootstrap=session.bootstrap,
            partitions=partitions,
            follow=follow,
            warn=lambda line: print(f"penstock: warning: {line}", file=sys.stderr, flush=True),
            skip_corrupt=skip_corrupt,
            debug=session.debug,
        )


@contextmanager
def _opened(session: Session, uri: str) -> "Iterator[tuple[Lake, Rows]]":
    """A folder is read as it is; anything else needs Spark, and a few seconds until it runs."""
    from penstock.spark.pipelines.archive.lake import local_folder, open_lake
    from penstock.spark.pipelines.from_archive.files import LocalRows, SparkRows

    if local_folder(uri) is not None:
        lake = open_lake(uri)
        yield lake, LocalRows(lake)
        return
    from penstock.cli.pipeline.spark_user import SparkUser
    from penstock.spark.pipelines.archive.tables import own_session
    from penstock.spark.session import session as make_session

    with SparkUser(debug=session.debug):
        spark = make_session("penstock consume")
    try:
        lake = open_lake(uri, spark)
        yield lake, SparkRows(lake, own_session(spark))
    finally:
        spark.stop()
