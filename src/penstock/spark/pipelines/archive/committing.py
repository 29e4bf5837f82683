"""How files get into the lake once they are staged, and what a run left behind that did not get so far.

    staged ── removed by whoever fails here, Ctrl-C too: no entry names these files
    commit ── the manifest entry is created: the point of no return. Whether it is there after an error nobody
              knows (an answer that got lost, a Ctrl-C in between), so the files stay where they are
    put_in_place ── staged files move to their places, replaced ones go

The next run finishes or removes, whichever the manifest says; before it removes anything it takes the number under
which that could still be committed. A manifest that names files which are nowhere is an error, never a beginning.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry
from penstock.spark.pipelines.archive.errors import ConflictError, CorruptFileError
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.manifest import STAGING, Manifest, entry_path


@contextmanager
def staged(lake: Lake, staging: str) -> Iterator[None]:
    """Around everything before the commit, and nothing behind it."""
    try:
        yield
    except BaseException:
        lake.delete(staging)
        raise


def commit(manifest: Manifest, entry: Entry) -> None:
    try:
        manifest.commit(entry)
    except ConflictError:
        # The number is another's for good: nobody will ever look for these files.
        manifest.lake.delete(f"{STAGING}/{entry.round}")
        raise
    put_in_place(manifest.lake, entry)
    manifest.tidy()


def put_in_place(lake: Lake, entry: Entry, *, without: Collection[str] = ()) -> None:
    """Move what a committed entry added, delete what it removed; as often as it takes.

    `without`: files that are lost. What an entry put them in the place of is not removed then.
    """
    lost = [file for file in entry.added if file.path in without]
    kept = [file for file in entry.added if file.path not in without]
    for file in kept:
        if file.staged is not None:
            try:
                lake.move(file.staged, file.path)
            except FileNotFoundError:
                raise lost_error(lake, file) from None
    # Their folders are perhaps of a run that was killed before it had synced the names of those.
    lake.sync(file.path for file in kept)
    for path in () if lost else entry.removed:
        lake.delete(path)
    # A checkpoint forgets their names: nobody would ever remove again what a power cut brings back. Staging needs no
    # such care, since every run clears it of what it does not know.
    lake.sync_removed(() if lost else entry.removed)
    lake.delete(f"{STAGING}/{entry.round}")


def recover(
    manifest: Manifest,
    *,
    report: Callable[[str], None] | None = None,
    still_owner: Callable[[], None] = lambda: None,
) -> None:
    """Only for the owner of the lake. Files that are lost are an error, or told to `report`.

    An owner that sleeps between any two steps may be none any more, and not know it. So it removes by the names that it
    has listed, and only what nobody will ever commit; what has come since is another's.
    """
    lake = manifest.lake
    there = _there(manifest)
    lost = _missing(manifest, there)
    manifest.missing = {file.path for file in lost}
    still_owner()
    # Whoever was killed between a name and its sync has left it to nobody but the page cache: before anybody goes by
    # what is committed, and retention deletes by it, it is durable. So is, before a checkpoint, what was removed.
    lake.sync(entry_path(entry.number) for entry in manifest.entries)
    lake.sync(file.path for entry in manifest.entries for file in entry.added if file.path in there)
    lake.sync_removed(path for entry in manifest.entries for path in entry.removed)
    for file in lost:
        if report is None:
            raise lost_error(lake, file)
        report(f"{lost_error(lake, file).known}; going on without its {file.rows} rows")
    gone = {file.path for file in lost} | {file.path for entry in manifest.entries for file in entry.given_up}
    # Of a file that was merged twice, what it was merged from first may be all that is left, or is back.
    gone |= manifest.replaced(gone) - there
    names = dict.fromkeys(path.split("/")[2] for path in there if path.startswith(f"{STAGING}/"))
    known = manifest.files.keys() | gone
    for entry in manifest.entries:
        # Of a compaction everything may have moved, and what it replaced be there still.
        if entry.round in names or not there.isdisjoint(entry.removed):
            # A task that was given up for lost may write to staging long after its round: files that a compaction has
            # replaced since are rightly nowhere.
            added = tuple(file for file in entry.added if file.path in known)
            put_in_place(lake, replace(entry, added=added), without=gone)
    orphans = names.keys() - {entry.round for entry in manifest.entries}
    if any(_number(name) > manifest.number for name in orphans):
        # Its owner may be alive somewhere and about to commit: take the number that it would commit under, so that
        # it cannot any more, and only then remove its files.
        fence = Entry(manifest.number + 1, "fence", f"{manifest.number + 1:010}-fence", now_text())
        manifest.commit(fence)
    for name in sorted(orphans):
        still_owner()
        lake.delete(f"{STAGING}/{name}")
    # Folders without files are in no listing.
    lake.prune(STAGING)
    manifest.tidy()


def _there(manifest: Manifest) -> set[str]:
    """What is in staging, and in every folder that an entry since the checkpoint did something to."""
    paths = [path for entry in manifest.entries for path in entry.removed]
    paths += [file.path for entry in manifest.entries for file in entry.added]
    folders = dict.fromkeys([STAGING, *(path.rpartition("/")[0] for path in paths)])
    return {stored.path for folder in folders for stored in manifest.lake.list(folder)}


def _missing(manifest: Manifest, there: Collection[str]) -> list[ArchivedFile]:
    """Neither in their places nor in staging, and not replaced since."""
    now = manifest.files
    added = [file for entry in manifest.entries for file in entry.added if file.path in now]
    return [file for file in added if file.path not in there and file.staged not in there]


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lost_error(lake: Lake, file: ArchivedFile) -> CorruptFileError:
    return CorruptFileError(
        lake.url(file.path),
        "is missing, and not in staging either",
        instead="run once with --no-fail-on-data-loss, which goes on without it and gives up what nobody has any more",
    )


def _number(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0
