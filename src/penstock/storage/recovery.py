"""Opening a log: trust what the recovery point vouches for, check every batch behind it, cut the torn tail.

After a clean shutdown the recovery point is the end of the log and there is nothing to scan. After a crash the scan
covers what was written since the last checkpoint: offsets must follow each other without a gap (but for those that
compaction makes, which followers take over from their leaders: where the topic compacts, or the cleaner's file says
that it did once), and the log ends before the first batch that is not whole. Where the recovery point is missing or
damaged, or something it vouches for is not there, the whole log is scanned; gaps are then no reason to stop, and
segments that cannot be right are set aside instead of deleted. Where the disk does not give any of it just now, the log
is not opened, and tried again later. All of it blocks, so it runs before the broker serves, or in a thread.

A bit that flips below the recovery point is not found here; readers find it, by the batch's CRC.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.core.files import Files
from penstock.storage.checkpoint import RecoveryPoint, known_epochs
from penstock.storage.compaction.checkpoint import Cleaned, load_cleaned, parse_cleaned, save_cleaned
from penstock.storage.compaction.swap import finish_swaps
from penstock.storage.epochs import EpochHistory
from penstock.storage.holes import damaged_segments, lacks_empty_end, may_have_holes, without_holes
from penstock.storage.layout import (
    ANEW,
    CLEANER_FILE,
    DAMAGED,
    LOG,
    OLD_POINT_FILE,
    PARTITION_FILE,
    RECOVERY_POINT_FILE,
    parse_segment_name,
    segment_name,
)
from penstock.storage.log import Log
from penstock.storage.lost import Lost, lost_below, note_lost
from penstock.storage.names import DirectoryNames
from penstock.storage.new_log import made_new
from penstock.storage.overlaps import without_filled_holes, without_overlaps
from penstock.storage.producer_snapshot import dump_state, load_producers
from penstock.storage.producers import ProducerState
from penstock.storage.recovered import Recovered
from penstock.storage.scan import Scan, remove
from penstock.storage.segment import Segment
from penstock.storage.settings import LogSettings


def open_log(
    files: Files,
    directory: Path,
    settings: LogSettings,
    *,
    rewrite_tail: bool = False,
    names_last: bool = False,
    first_offset: int = 0,
    owner: str = "",
    only_copy: bool = False,
    has_laggards: bool = False,
    expected: bool = False,
) -> Recovered:
    """Open a log, or make a new one that begins at `first_offset`; a recovery point of another `owner` is not trusted.

    What is lost of an `only_copy` comes back from nobody: the log goes on behind it, and never gives its offsets anew.
    If it `has_laggards`, they may have it after all: it starts where it started, or they would delete that.

    `rewrite_tail` is for a log that failed in this process: after an fsync that did not work, the kernel takes pages
    for clean that never reached the disk, so they are written once more. `names_last`: whoever had the log before
    vouches that its files, and their names, are durable.

    There are other replicas where it `has_laggards`: then it is noted where it may lack what they have
    (`storage.incomplete`). So it is where there is nothing, of a log that is `expected` to be here. An only copy that
    lost what its recovery point names is not noted: it knows where it ended, and where what was deleted ends.
    """
    if (begun := _begun_anew(files, directory, settings, owner)) is not None:
        return begun
    finish_swaps(files, directory)
    names = DirectoryNames(files, directory)
    point = names.recovery_point(owner)
    was_noted = names.had_point and names.has_records
    if point is None and not was_noted and (expected or (has_laggards and names.has_records)):
        names.note_incomplete()
    # Read before anything changes: what a start that came to nothing has put right, the next one does not tell.
    cleaned = files.read(directory / CLEANER_FILE) if names.has_cleaned else None
    recovered = _open(
        files,
        directory,
        settings,
        names,
        point,
        first_offset,
        owner,
        rewrite_tail=rewrite_tail,
        names_last=names_last,
        only_copy=only_copy,
        has_laggards=has_laggards,
    )
    if cleaned is not None:
        recovered.log.may_have_gaps = True
        _take_over(recovered.log, parse_cleaned(cleaned, recovered.log.end_offset))
    recovered.log.is_incomplete = names.is_incomplete
    return recovered._replace(unvouched=point is None, set_aside=[*names.set_aside, *recovered.set_aside])


def _open(
    files: Files,
    directory: Path,
    settings: LogSettings,
    names: DirectoryNames,
    point: RecoveryPoint | None,
    first_offset: int,
    owner: str,
    *,
    rewrite_tail: bool,
    names_last: bool,
    only_copy: bool,
    has_laggards: bool,
) -> Recovered:
    start = max((*names.starts, 0 if point is None else point.start_offset))
    segments = _needed(files, directory, names, point, start)
    may_skip = names.has_cleaned or settings.compacts
    damaged = damaged_segments(point, start, names.merged, segments)
    known = partial(known_epochs, files, directory, point if only_copy else None)  # asked after a loss
    has_lost = bool(damaged) or (point is not None and not segments and start < point.offset)
    is_one_of_many = has_laggards and not (only_copy and (not has_lost or known() is not None))
    if is_one_of_many and (damaged or may_have_holes(point, None if may_skip else names.gaps, segments)):
        names.note_incomplete()
    if segments and (not names.starts if point is None else point.sealed is None):
        # An earlier version's retention did not say so in any other way.
        start = max(start, segments[0].base_offset)
    segments, holes, aside = without_holes(segments, damaged, start, point, only_copy=only_copy)
    if aside:
        files.sync_dir(directory)  # before a recovery point in front of them, by which they would be deleted
    if not segments:
        lost = _noted_loss(files, directory, names, point, 0, marked=is_one_of_many)
        # Others know offsets up to where it ended, and nobody else would keep from giving them anew.
        begin = max(start, first_offset, point.offset if point is not None and only_copy else 0)
        starts_at = start if only_copy and has_laggards else begin
        made = made_new(files, directory, settings, begin, owner, start_offset=starts_at, epochs=known())
        names.drop_snapshots()
        return made._replace(lost=lost, set_aside=aside)
    scan = Scan(files, directory, settings, segments, None if aside else point, names, may_skip=may_skip)
    if scan.lacks_state and has_laggards:
        names.note_incomplete()
    scan.run(start, rewrite_tail=rewrite_tail, names_last=names_last)
    below, behind = segments[0].base_offset, scan.point.offset if scan.point else -1
    # The point's own is there as long as the point is: without it this log would lack what producers did.
    names.drop_snapshots(below=below, behind=behind, but=point.offset if point else None)
    lost = _noted_loss(files, directory, names, point, scan.end_offset, holes, marked=is_one_of_many)
    if start > scan.end_offset:
        # Readers were told that this is gone: no offset twice.
        begin = max(start, point.offset) if only_copy and point is not None else start
        starts_at = start if only_copy and has_laggards else begin
        emptied = _emptied(names, scan, begin, owner, starts_at, known())
        return emptied._replace(lost=lost, set_aside=[*aside, *scan.set_aside])
    scan.know_epochs(known() if only_copy and lost else None)
    scan.epochs.advance_start(start)
    # Not where it has got all of that back, from another replica, since it was noted.
    if leaves_out := only_copy and lost is not None and scan.batches_end < lost[1]:
        scan.leave_out(lost[1])
    # By such a point what follows the gap would be cut.
    is_wrong = scan.point is None or holes is not None or leaves_out
    if is_wrong:
        scan.point = None
    log = _scanned_log(scan, start, owner)
    log.row.merged = names.merged
    if is_wrong:
        has_snapshot = _replace_point(log) and bool(log.producers.copy())
        names.drop_snapshots(below=below, behind=behind, but=log.end_offset if has_snapshot else None)
    return Recovered(log, scan.scanned_bytes, scan.cut_bytes, [*aside, *scan.set_aside], lost)


def _scanned_log(scan: Scan, start: int, owner: str) -> Log:
    return Log(
        scan.files,
        scan.directory,
        scan.settings,
        scan.segments,
        start_offset=start,
        end_offset=scan.end_offset,
        epochs=scan.epochs,
        producers=scan.producers,
        aborted=scan.aborted,
        point=scan.point,
        unscanned_cost=scan.cost,
        owner=owner,
    )


def _emptied(
    names: DirectoryNames, scan: Scan, begin: int, owner: str, starts_at: int, known: EpochHistory | None
) -> Recovered:
    """Nothing that the scan found lies behind the log's start. Producers have written more than is known of them."""
    scan.producers.forget_clients()
    made = made_new(
        scan.files,
        scan.directory,
        scan.settings,
        begin,
        owner,
        scan.producers,
        start_offset=starts_at,
        epochs=known,
    )
    for segment in scan.segments:
        remove(scan.files, segment)
    names.drop_snapshots(but=begin if made.log.producers.copy() else None)
    return made


def _noted_loss(
    files: Files,
    directory: Path,
    names: DirectoryNames,
    point: RecoveryPoint | None,
    end_offset: int,
    holes: Lost | None = None,
    *,
    marked: bool,
) -> Lost | None:
    """What is lost of a log that ends there, with what a start before this one has found, and not told."""
    behind = lost_below(point, names.starts, end_offset) if point is not None else None
    found = [lost for lost in (holes, behind) if lost is not None]
    if found and marked:
        names.note_incomplete()
    for lost in found:
        if lost not in names.lost:
            note_lost(files, directory, lost)
    found += names.lost
    return (min(found)[0], max(end for _, end in found)) if found else None


def begin_anew(log: Log, offset: int, producers: ProducerState) -> Log:
    """An empty log that begins at `offset`, behind the end of the one in its place. Blocks.

    It knows what producers had done by there. The recovery point puts it in force: before, a restart finds the old one.
    """
    made_new(log.files, log.directory, log.settings, offset, log.owner, producers).log.close()
    return open_log(log.files, log.directory, log.settings, owner=log.owner).log


def start_over(log: Log, offset: int, producers: ProducerState) -> Log:
    """Nothing that this log has is of use: an empty one, which begins at `offset`, anywhere. Blocks.

    Cut back step by step, what a crash left of it would look like a log that only ends early.
    """
    mark = log.directory / segment_name(offset, ANEW)
    # From here on a restart comes to the same.
    log.files.write_atomically(mark, dump_state(producers))
    return open_log(log.files, log.directory, log.settings, owner=log.owner).log


def _begun_anew(files: Files, directory: Path, settings: LogSettings, owner: str) -> Recovered | None:
    """The new log in place of one that was to start over; None: it was not."""
    names = files.list_dir(directory)
    begins = [begin for name in names if (begin := parse_segment_name(name, ANEW)) is not None]
    if not begins:
        return None
    mark = directory / segment_name(begins[0], ANEW)
    # Before anything goes: what cannot be read just now must be there the next time, and a newer release may have
    # written it.
    producers = load_producers(files.read(mark))
    cleaned = load_cleaned(files, directory, begins[0]) if CLEANER_FILE in names else None
    files.sync_dir(directory)  # the mark may be known to the page cache alone
    for name in names:
        if name not in (PARTITION_FILE, CLEANER_FILE) and not name.endswith((ANEW, DAMAGED)):
            files.unlink(directory / name)
    begun = made_new(files, directory, settings, begins[0], owner, producers)
    if cleaned is not None:
        begun.log.may_have_gaps = True
        begun.log.cleaned = Cleaned(tombstones=cleaned.tombstones)
        save_cleaned(files, directory, begun.log.cleaned)
    files.unlink(mark)  # not before all of it is so, durably
    files.sync_dir(directory)
    return begun


def _take_over(log: Log, known: Cleaned) -> None:
    """Where the end was lost, the mark is lowered before anything else can take its place."""
    log.cleaned = known.cut(log.end_offset)
    if log.cleaned != known:
        save_cleaned(log.files, log.directory, log.cleaned)


def _replace_point(log: Log) -> bool:
    """The recovery point on disk is wrong: nobody must ever read it again. Whether there is another now."""
    job = log.sync_job(checkpoint=True)
    job.run()
    if not job.checkpointed:  # a full disk; then the next start looks at everything once more
        with suppress(FileNotFoundError):
            log.files.rename(log.directory / RECOVERY_POINT_FILE, log.directory / OLD_POINT_FILE)
        log.files.sync_dir(log.directory)
    log.synced(job)
    return job.checkpointed


def _needed(
    files: Files, directory: Path, names: DirectoryNames, point: RecoveryPoint | None, start: int
) -> list[Segment]:
    """The segments, without those that a power cut kept the names of, though they were deleted before; nor others' ones
    that overlap them."""
    below = start if point is None else min(start, point.segment)
    sizes = [files.size(directory / segment_name(base, LOG)) for base in names.bases]
    segments = [Segment(files, directory, base, size) for base, size in zip(names.bases, sizes, strict=True)]
    segments, names.set_aside = without_overlaps(files, point, start, names.merged, segments)
    segments = without_filled_holes(files, point, segments)  # or what was put back would seem to end there
    while len(segments) > 1 and segments[1].base_offset <= below:
        remove(files, segments.pop(0))
    if names.set_aside:
        files.sync_dir(directory)
    if point is not None and lacks_empty_end(point, start, names.merged, segments):
        segments.append(Segment.create(files, directory, point.segment))
        files.sync_dir(directory)
    return segments
