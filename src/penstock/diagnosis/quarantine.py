"""Doctor: partition directories that a broker set aside, which of them may be missed, and how those come back."""

import os
import re
from collections import Counter
from pathlib import Path

from penstock.core.errors import StorageError
from penstock.core.text import count_text
from penstock.diagnosis.findings import Finding, fail, ok, warn
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.data_format import METADATA_FILE
from penstock.storage.layout import LOG, PARTITION_FILE, RECOVERY_POINT_FILE, partition_dir, segment_name

# As `DataDir` names them: the topic's id, where it is known.
_UNKNOWN = "unknown"
_QUARANTINED = re.compile(rf"(?P<topic>.+)-(?P<index>\d+)-(?P<owner>[0-9a-f]{{32}}|{_UNKNOWN})\.\d+")


def quarantine(data_dir: Path, *, is_running: bool) -> Finding:
    """`is_running`: a broker serves what is there, and may write to it at any moment."""
    check = "quarantine"
    try:
        names = sorted(os.listdir(data_dir / "quarantine"))
    except OSError:
        names = []
    if not names:
        return ok(check, "empty")
    if missed := [name for name in names if _may_be_missed(data_dir, name)]:
        return fail(
            check,
            f"{_set_aside(missed)}, of partitions that this broker serves: nothing said whose they were",
            "keep them, what was acknowledged may be nowhere else: copy them to a safe place, and compare them with "
            f"what is served now{_way_back(data_dir, missed, is_running=is_running)}",
        )
    return warn(
        check,
        _set_aside(names),
        "partitions that the metadata does not know, or that were not on this broker for a while: other brokers went "
        "on without these copies, so put none back, also where the partition is here again; delete them from "
        f"{data_dir / 'quarantine'} when not missed",
    )


def _set_aside(names: list[str]) -> str:
    """All of them: they are to be kept, or to be deleted, by name."""
    return f"{count_text(len(names), 'directory', 'directories')} set aside: {', '.join(names)}"


def _may_be_missed(data_dir: Path, name: str) -> bool:
    """Whether it may be the log of a partition that is served here, and began anew without it.

    One with an id is not: it is of an earlier topic of that name, or it was set aside because others had taken its part
    while this broker was away.
    """
    place = _place_of_unknown(data_dir, name)
    return place is not None and place.is_dir() and any((data_dir / "quarantine" / name).glob(f"*{LOG}"))


def _place_of_unknown(data_dir: Path, name: str) -> Path | None:
    found = _QUARANTINED.fullmatch(name)
    if found is None or found["owner"] != _UNKNOWN:
        return None
    return partition_dir(data_dir, found["topic"], int(found["index"]))


def _way_back(data_dir: Path, missed: list[str], *, is_running: bool) -> str:
    """Only where nothing can be newer: no other broker has the partition, and nothing was written in its place."""
    if not (data_dir / METADATA_FILE).exists():  # a cluster keeps them elsewhere
        return "; put none in the place of what is served, which may be ahead of it"
    places = Counter(_place_of_unknown(data_dir, name) for name in missed)
    back = [
        name
        for name in missed
        if (place := _place_of_unknown(data_dir, name)) and places[place] == 1 and _is_unwritten(place)
    ]
    if not back:
        return "; put none in the place of what is served, which was written to since"
    if is_running:
        return (
            "; put none in the place of what is served. Whether any can come back shows when nothing is written any "
            "more: stop the broker, and ask `penstock doctor` again"
        )
    others = (
        ""
        if len(back) == len(missed)
        else "; put none of the others back, what is in their places may be ahead of them"
    )
    return (
        f". Nothing was written since in the place of {', '.join(back)}: if it is of this topic, and not of an earlier "
        f"one of its name, copy {PARTITION_FILE} from there into it, move what is in its place to a safe place, keep "
        f"that, and move it into its place, all before the broker is started again; else ask once more{others}"
    )


def _is_unwritten(place: Path) -> bool:
    """Nor was anything that was deleted or set aside again: it begins at 0, and its recovery point is there."""
    try:
        logs = [path for path in place.iterdir() if LOG in path.name]
        point = RecoveryPoint.parse((place / RECOVERY_POINT_FILE).read_bytes())
        is_empty = [path.name for path in logs] == [segment_name(0, LOG)] and not logs[0].stat().st_size
    except (OSError, StorageError):
        return False
    return is_empty and point.offset == 0
