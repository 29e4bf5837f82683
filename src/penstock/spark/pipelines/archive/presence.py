"""Whether files of the lake are there, before the broker is told that what is in them is archived.

A file may go at any time: before a run, while it goes on, long after a checkpoint has forgotten its entry. So at the
start of a run, and again after as many entries as a checkpoint takes, all files are looked for that have records which
the broker has still. What that costs grows with what the broker keeps, not with the lake.
"""

from collections.abc import Callable, Mapping

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive import manifest as manifests
from penstock.spark.pipelines.archive.losses import kept_from
from penstock.spark.pipelines.archive.standing import Log


class Presence:
    def __init__(self, manifest: manifests.Manifest, still_owner: Callable[[], None]) -> None:
        self._manifest = manifest
        self._still_owner = still_owner
        self._again_at = 0  # the number of an entry
        self._looked_from: dict[TopicPartition, int] = {}

    def look(self, ids: Mapping[str, str], logs: Mapping[TopicPartition, Log]) -> None:
        """Bring `missing` of the manifest up to date, where it is time to.

        A partition that had no leader at the last look, or has one with older records now, is looked at at once.
        """
        manifest = self._manifest
        if manifest.number >= self._again_at:
            self._looked_from.clear()
            self._again_at = manifest.number + manifests.CHECKPOINT_ENTRIES
        due = {
            at: log for at, log in logs.items() if log.earliest < self._looked_from.get(at, log.earliest + 1)
        }
        if not due:
            return
        files = [
            file
            for file in manifest.files.values()
            if ids.get(file.topic) == file.topic_id and kept_from(file, due)
        ]
        there = manifest.present(files)
        missing = {file.path for file in files} - there
        if missing - manifest.missing:
            self._still_owner()  # or another one has merged them into others
        manifest.missing = manifest.missing - there | missing
        self._looked_from |= {at: log.earliest for at, log in due.items()}
