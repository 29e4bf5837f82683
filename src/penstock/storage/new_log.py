"""Logs that have nothing in them yet."""

from pathlib import Path

from penstock.core.files import Files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.epochs import UNKNOWN_EPOCH, EpochHistory
from penstock.storage.layout import INCOMPLETE_FILE, LOG, RECOVERY_POINT_FILE, SNAPSHOT, segment_name
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import dump_state
from penstock.storage.producers import ProducerState
from penstock.storage.recovered import Recovered
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.settings import LogSettings


def made_new(
    files: Files,
    directory: Path,
    settings: LogSettings,
    start: int,
    owner: str,
    producers: ProducerState | None = None,
    *,
    start_offset: int | None = None,
    epochs: EpochHistory | None = None,
) -> Recovered:
    """`start_offset`: where it starts for readers, if that is before what it lost; `epochs`: of that, as on disk."""
    segments = [Segment.create(files, directory, start)]
    producers = producers or ProducerState()
    point = _new_point(start, owner, producers=len(known := producers.copy()))
    if epochs is not None:
        point = point._replace(epoch=epochs.latest)
    if start_offset is not None:
        point = point._replace(start_offset=start_offset)
    if known:
        files.write_atomically(directory / segment_name(start, SNAPSHOT), dump_state(producers))
    # Makes the segment's name durable, too.
    files.write_atomically(directory / RECOVERY_POINT_FILE, point.dump())
    log = Log(
        files,
        directory,
        settings,
        segments,
        start_offset=point.start_offset,
        end_offset=start,
        epochs=epochs or EpochHistory(),
        producers=producers,
        point=point,
        owner=owner,
    )
    return Recovered(log, 0, 0, [])


def lay_out(files: Files, directory: Path, owner: str, *, is_incomplete: bool) -> None:
    """The files of a new, empty log, not synced: for many at once, followed by one sync of the file system."""
    if is_incomplete:
        files.open(directory / INCOMPLETE_FILE, create=True).close()
    files.open(directory / segment_name(0, LOG), create=True).close()
    file = files.open(directory / RECOVERY_POINT_FILE, create=True)
    file.pwrite(_new_point(0, owner).dump(), 0)
    file.close()


def _new_point(start: int, owner: str, *, producers: int = 0) -> RecoveryPoint:
    return RecoveryPoint(start, start, start, 0, 0, NO_TIMESTAMP, producers, UNKNOWN_EPOCH, owner, ())
