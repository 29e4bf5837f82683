"""What the broker has of the topics now, beside what is archived of them.

Rounds are planned by it, checked by it before they are committed, and told by it.
"""

from collections.abc import Callable, Mapping

from penstock.client.raw import TopicInfo, TopicPartition
from penstock.spark.pipelines.archive.errors import ArchiveError
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.source import Source
from penstock.spark.pipelines.archive.standing import Held, Log, Standing, standing


class Survey:
    def __init__(self, source: Source, manifest: Manifest, warn_once: Callable[[str], None]) -> None:
        self._source = source
        self._manifest = manifest
        self._warn_once = warn_once
        self.own: set[TopicPartition] = set()  # archived by this process
        # Partitions that nobody answers for, as the last look found it.
        self.unled: tuple[TopicPartition, ...] = ()

    def found(self) -> dict[str, TopicInfo]:
        """The topics that are at the broker."""
        found, missing = check_topics(self._source, self._manifest)
        for name in missing:
            self._warn_once(f"topic {name} is gone from the broker; what is archived of it stays")
        if not found and not missing:
            self._warn_once("no topic matches the pattern yet")
        return found

    def logs(
        self, found: Mapping[str, TopicInfo], held: Mapping[TopicPartition, Held]
    ) -> dict[TopicPartition, Log]:
        # One who leads no more, and has not heard of it, would seem to have lost all that came after it.
        epochs: dict[str, dict[int, int]] = {}
        for at, of in held.items():
            epochs.setdefault(at.topic, {})[at.partition] = of.epochs_max
        for name, heard in epochs.items():
            self._source.expect(found[name], heard)
        logs = self._source.logs(found.values())
        there = [TopicPartition(name, at) for name, info in found.items() for at in info.partitions]
        self.unled = tuple(at for at in there if at not in logs)
        for at in self.unled:
            self._warn_once(f"{at} has no leader that answers: it is archived when it has one again")
        return logs

    def held(self, ids: Mapping[str, str]) -> dict[TopicPartition, Held]:
        """What is archived of the topics that have these ids."""
        held: dict[TopicPartition, Held] = {}
        for name, topic_id in ids.items():
            archive = self._manifest.topic(name, topic_id)
            if archive is not None:
                held |= {
                    TopicPartition(name, at): Held(archive.line(at), archive.branches.get(at, ()))
                    for at in archive.next_offsets
                }
            elif self._manifest.topic(name) is not None:
                self._warn_once(
                    f"topic {name} was deleted and made anew: it is archived from its start, "
                    "beside what is archived of the old one"
                )
        return held

    def standing(self, logs: Mapping[TopicPartition, Log], held: Mapping[TopicPartition, Held]) -> Standing:
        """As the last look at the logs found it. Who has no leader is there all the same, also while it is retired."""
        there = {at: of for at, of in held.items() if at not in self.unled}
        return standing(self._source, logs, there, self.own)


def check_topics(source: Source, manifest: Manifest) -> tuple[dict[str, TopicInfo], list[str]]:
    """As `Source.find`; but a topic that is neither at the broker nor in the archive is a mistake."""
    found, missing = source.find()
    unknown = [name for name in missing if name not in manifest.topics]
    if unknown:
        raise ArchiveError(
            f"there is no topic {', '.join(unknown)}: see `penstock topic list`, or make it with "
            "`penstock topic create`"
        )
    return found, missing
