"""Files of the lake that are gone for good: what was in them is noted as lost where the broker has none of it either.

While the broker has a record of such a file, it is looked for: retention keeps the record, and checkpoints wait. Once
it has none there is nothing to wait for, and an entry says what was lost. A file that comes back later is left where it
is, and counts no more.
"""

import uuid
from collections.abc import Mapping

from penstock.client.raw import Heard, TopicPartition
from penstock.spark.pipelines.archive.committing import now_text
from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.source import id_of
from penstock.spark.pipelines.archive.standing import Log


def loss_entry(
    manifest: Manifest, ids: Mapping[str, str], logs: Mapping[TopicPartition, Log], heard: Heard
) -> Entry | None:
    """What gives up the missing files that are worth no waiting; `heard` of their topics."""
    lost = [file for file in missing_files(manifest) if _is_lost(manifest, file, ids, logs, heard)]
    if not lost:
        return None
    number = manifest.number + 1
    return Entry(number, "loss", f"{number:010}-{uuid.uuid4().hex}", now_text(), given_up=tuple(lost))


def missing_files(manifest: Manifest) -> list[ArchivedFile]:
    files = manifest.files
    return [files[path] for path in sorted(manifest.missing & files.keys())]


def kept_from(file: ArchivedFile, logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, int]:
    """The partitions whose logs have records still that count in a file, and its first offset of each."""
    found = {TopicPartition(file.topic, at): span for at, span in file.offsets.items()}
    return {at: first for at, (first, last) in found.items() if at in logs and last >= logs[at].earliest}


def _is_lost(
    manifest: Manifest,
    file: ArchivedFile,
    ids: Mapping[str, str],
    logs: Mapping[TopicPartition, Log],
    heard: Heard,
) -> bool:
    known = logs if ids.get(file.topic) == file.topic_id else {}
    named = [info for info in heard.topics.get(file.topic, ()) if id_of(info) == file.topic_id]
    there = {at for info in named for at in info.partitions}
    # Of a topic of another cluster nobody here has heard, and its records may all be there.
    can_tell = heard.by_all and (bool(named) or _is_of(manifest, file, heard.cluster))
    for at in file.offsets.keys() | file.held.keys():
        # Of a topic that this run does not look at, or of a partition that nobody leads, nobody knows. One that left
        # its topic has taken its records with it.
        if TopicPartition(file.topic, at) not in known and (at in there or not can_tell):
            return False
    return not kept_from(file, known) and _is_nowhere(manifest, file)


def _is_of(manifest: Manifest, file: ArchivedFile, cluster: str | None) -> bool:
    """Whether a file is known to be of this cluster."""
    archive = manifest.topic(file.topic, file.topic_id)
    return bool(cluster) and archive is not None and archive.cluster == cluster


def _is_nowhere(manifest: Manifest, file: ArchivedFile) -> bool:
    """Not back by now; nor are those that compactions put it in the place of, and that have its rows."""
    there = {stored.path for stored in manifest.lake.list(file.folder)}
    return file.path not in there and there.isdisjoint(manifest.replaced({file.path}))
