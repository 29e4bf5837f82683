"""Letting the broker know how far its topics are archived (`penstock.archive.progress`): retention goes by it.

No further than the log is the one that was archived, and not past rows whose file is missing while the broker has
their records still.
"""

from collections.abc import Callable, Mapping

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.losses import kept_from, missing_files
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.presence import Presence
from penstock.spark.pipelines.archive.source import Source, id_of
from penstock.spark.pipelines.archive.standing import Log
from penstock.spark.pipelines.archive.survey import Survey


def tell(
    source: Source,
    manifest: Manifest,
    survey: Survey,
    presence: Presence,
    still_owner: Callable[[], None],
    warn_once: Callable[[str], None],
) -> bool:
    """Tell what can be told; whether the broker knows now how far everything is archived."""
    archived: dict[str, tuple[str, dict[int, int]]] = {}
    epochs: dict[TopicPartition, int] = {}
    found, _ = source.find()
    ids = {name: id_of(info) for name, info in found.items()}
    held = survey.held(ids)
    logs = survey.logs(found, held)
    parted = survey.standing(logs, held).parted
    presence.look(ids, logs)
    missing = _missing(manifest, ids, logs, warn_once)
    for at, (line, _) in held.items():
        if at not in logs:
            continue
        # No further than the log is the one that was archived. What a branch has may be told when it counts again.
        offset = min(line.end, parted.get(at, line.end), missing.get(at, line.end))
        archived.setdefault(at.topic, (ids[at.topic], {}))[1][at.partition] = offset
        epoch = line.epoch_before(offset)
        if epoch is not None:
            epochs[at] = epoch
    troubles = source.tell(archived, epochs, survey.unled, still_owner)
    if not troubles:
        # Lower than it is archived, and by our own word: the broker has no more reason to lower it, were an end lost.
        survey.own -= missing.keys()
    for trouble in troubles:
        warn_once(trouble)  # it is told again and again until it is heard
    return not troubles and not survey.unled


def _missing(
    manifest: Manifest,
    ids: Mapping[str, str],
    logs: Mapping[TopicPartition, Log],
    warn_once: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """From where on rows are in files that are nowhere, and the broker has records of them still."""
    found: dict[TopicPartition, int] = {}
    for file in missing_files(manifest):
        if ids.get(file.topic) != file.topic_id:
            continue
        for at, first in kept_from(file, logs).items():
            found[at] = min(first, found.get(at, first))
    for at, offset in found.items():
        warn_once(
            f"retention is told that {at} is archived up to {offset} only: a file behind is missing. Bring it "
            "back; if nobody has it, archive the topic into another place (--take-over): the broker still has its "
            "records. penstock.archive.required=false would give them up, and all that is not archived yet"
        )
    return found
