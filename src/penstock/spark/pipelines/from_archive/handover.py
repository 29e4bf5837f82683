"""From the archive to the broker, with the reader's interface of `penstock consume`."""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from penstock.client.admin.admin import Admin
from penstock.client.admin.topics import uuid_text
from penstock.client.console.reader import ConsoleReader, Range
from penstock.client.console.row import ConsoleRow
from penstock.client.console.topic_watch import TopicWatch
from penstock.client.raw import EARLIEST, LATEST, RawClient, TopicInfo, TopicPartition, UnknownTopicError
from penstock.spark.pipelines.archive.entries import NO_ID
from penstock.spark.pipelines.archive.errors import ArchiveError
from penstock.spark.pipelines.archive.lake import Lake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.reader import find_topic
from penstock.spark.pipelines.archive.standing import partings
from penstock.spark.pipelines.archive.topics import TopicArchive
from penstock.spark.pipelines.from_archive.archived import Archived
from penstock.spark.pipelines.from_archive.files import Rows

# How many archived rows are handed out at a time.
_AT_ONCE = 1_000


class _Edges(NamedTuple):
    earliest: int
    latest: int


class ArchiveThenLive:
    """`read` until `done`; `warn` hears of gaps and of topics that were made anew."""

    def __init__(
        self,
        lake: Lake,
        rows: Rows,
        topic: str,
        *,
        bootstrap: str,
        partitions: Collection[int] | None = None,
        follow: bool,
        warn: Callable[[str], None],
        skip_corrupt: bool = False,
        debug: bool = False,
    ) -> None:
        self._lake = lake
        self._rows = rows
        self._topic = topic
        self._bootstrap = bootstrap
        self._chosen = None if partitions is None else frozenset(partitions)
        self._follow = follow
        self._warn = warn
        self._skip_corrupt = skip_corrupt
        self._debug = debug
        self._client = RawClient(bootstrap)
        self._current: Archived | None = None
        self._positions: dict[int, int] = {}
        self._live: ConsoleReader | None = None
        self._live_ends: dict[int, int] = {}
        self._pending: Iterator[ConsoleRow] | None = self._archived()
        self._gone = False

    def close(self) -> None:
        self._client.close()
        if self._live is not None:
            self._live.close()

    @property
    def done(self) -> bool:
        if self._pending is not None:
            return False
        return self._gone or (self._live is not None and self._live.done)

    @property
    def broker_lost(self) -> bool:
        return self._live is not None and self._live.broker_lost

    def read(self, timeout: float) -> Iterator[ConsoleRow]:
        if self._pending is not None:
            some = list(islice(self._pending, _AT_ONCE))
            if len(some) < _AT_ONCE:
                self._pending = None
            yield from some
        elif self._live is not None:
            for message in self._live.read(timeout):
                yield from self._in_turn(ConsoleRow.of(message))
            if self._live.done:
                yield from self._rest()

    # -- the archive --------------------------------------------------------------------------------------------

    def _archived(self) -> Iterator[ConsoleRow]:
        """Everything until the broker can take over."""
        manifest = Manifest.load(self._lake)
        newest = find_topic(manifest, self._topic)
        info = self._describe()
        live_id = None if info is None else (NO_ID if info.topic_id is None else str(info.topic_id))
        self._check_partitions(manifest, info)
        for old in manifest.topics[self._topic]:
            if old.topic_id != live_id:
                yield from self._old(old, newest, gone=info is None)
        if info is None:
            self._warn(f"there is no topic {self._topic} any more: what is archived of it was all")
            self._gone = True
            return
        assert live_id is not None
        found = manifest.topic(self._topic, live_id)
        archive = found or TopicArchive(self._topic, live_id, since=0)
        self._current = self._archived_of(archive)
        yield from self._catch_up(info)
        self._go_live(info)

    def _describe(self) -> TopicInfo | None:
        with suppress(UnknownTopicError):
            return self._client.describe([self._topic])[self._topic]
        return None

    def _check_partitions(self, manifest: Manifest, info: TopicInfo | None) -> None:
        known = set(() if info is None else info.partitions)
        for archive in manifest.topics[self._topic]:
            known |= archive.ranges.keys() | archive.lost.keys()
        unknown = sorted((self._chosen or frozenset()) - known)
        if unknown:
            last = max(known, default=0)
            raise ArchiveError(
                f"{self._topic} has no partition {unknown[0]}: choose from 0 to {last} with --partition"
            )

    def _wanted(self, partitions: Collection[int]) -> list[int]:
        return [at for at in sorted(partitions) if self._chosen is None or at in self._chosen]

    def _archived_of(self, archive: TopicArchive) -> Archived:
        return Archived(
            archive,
            self._rows,
            lambda: Manifest.load(self._lake),
            self._warn,
            skip_corrupt=self._skip_corrupt,
        )

    def _old(self, old: TopicArchive, newest: TopicArchive, *, gone: bool) -> Iterator[ConsoleRow]:
        """An incarnation that the broker no longer has: all of it comes first."""
        if not gone or old is not newest:
            self._warn(
                f"{self._topic} was deleted and made anew: first comes what is archived of the old one "
                f"(id {old.topic_id}), then the new one from its start"
            )
        archived = self._archived_of(old)
        ends = old.next_offsets
        for partition in self._wanted(ends):
            self._tell_holes(archived, partition, 0, ends[partition])
        yield from archived.read({partition: (0, ends[partition]) for partition in self._wanted(ends)})

    def _catch_up(self, info: TopicInfo) -> Iterator[ConsoleRow]:
        """The archive, again and again, until the broker has what comes next in every partition."""
        assert self._current is not None
        current = self._current
        self._positions = dict.fromkeys(self._wanted({*info.partitions, *current.archive.next_offsets}), 0)
        behind = list(self._positions)
        while behind:
            ranges = {}
            ends = self._ends(current, info)
            for at in behind:
                position, end = self._positions[at], ends[at]
                if end > position:
                    self._tell_holes(current, at, position, end)
                    ranges[at] = (position, end)
            yield from current.read(ranges)
            self._positions |= {at: end for at, (_, end) in ranges.items()}
            edges = self._edges(info)
            behind = [
                at
                for at in behind
                if at in edges
                and edges[at].earliest > self._positions[at]
                and not self._client.serves(TopicPartition(self._topic, at), self._positions[at])
            ]
            if not behind:
                return
            current.refresh()
            ends = self._ends(current, info)
            for at in behind:
                if ends[at] <= self._positions[at]:
                    # The broker has no earlier one, and the archive has no later one.
                    self._tell_gap(at, self._positions[at], edges[at].earliest)
                    self._positions[at] = edges[at].earliest

    def _ends(self, current: Archived, info: TopicInfo) -> dict[int, int]:
        """Up to where the archive is read: where a log parted from it, and was not archived again yet, no further."""
        if info.topic_id is not None:
            # As the archiver: one who leads no more would seem to have lost what came after it.
            known = {at: line.epochs_max for at, line in current.archive.lines.items()}
            self._client.expect(info.topic_id, known)
        edges = self._edges(info)
        lines = {
            TopicPartition(self._topic, at): line for at, line in current.archive.lines.items() if at in edges
        }
        latest = {at: edges[at.partition].latest for at in lines}
        parted = {at.partition: where for at, where in partings(self._client, lines, latest).items()}
        return {at: parted.get(at, current.end(at)) for at in self._positions}

    def _edges(self, info: TopicInfo) -> dict[int, _Edges]:
        ats = [TopicPartition(self._topic, at) for at in self._wanted(info.partitions)]
        earliest = self._client.offsets(dict.fromkeys(ats, EARLIEST))
        latest = self._client.offsets(dict.fromkeys(ats, LATEST), committed=True)
        return {at.partition: _Edges(earliest[at].offset, latest[at].offset) for at in ats}

    # -- the broker ---------------------------------------------------------------------------------------------

    def _go_live(self, info: TopicInfo) -> None:
        ranges = {}
        for at, edges in self._edges(info).items():
            position = self._positions.setdefault(at, 0)
            if edges.earliest > position and self._client.serves(TopicPartition(self._topic, at), position):
                # A partition that was grown again: nothing was ever there for readers, and nobody waits for it.
                position = self._positions[at] = max(position, min(edges.earliest, self._earliest(at)))
            if position > edges.latest:
                self._warn(
                    f"{self._topic}-{at} is archived up to offset {position}, but ends at {edges.latest} on the "
                    "broker: its end was cut off; what is written there is shown from that offset on"
                )
            ranges[at] = Range(min(position, edges.latest), position, edges.latest)
        watch = None
        if self._follow and info.topic_id is not None:
            watch = TopicWatch(Admin(self._bootstrap), self._topic, uuid_text(info.topic_id))
        self._live_ends = {at: wanted.end for at, wanted in ranges.items()}
        self._live = ConsoleReader(
            self._bootstrap,
            self._topic,
            ranges,
            isolation="read_committed",  # as what the archive has
            follow=self._follow,
            debug=self._debug,
            watch=watch,
        )

    def _earliest(self, partition: int) -> int:
        """As told now: who told it before may lead no more, and the next leader has more of the log."""
        at = TopicPartition(self._topic, partition)
        return self._client.offsets({at: EARLIEST})[at].offset

    def _in_turn(self, row: ConsoleRow) -> Iterator[ConsoleRow]:
        """A live row; before it what retention took away between our position and it, if the archive has that."""
        position = self._positions.get(row.partition, 0)
        if row.offset < position:
            return
        if row.offset > position:
            yield from self._fill(row.partition, position, row.offset)
        self._positions[row.partition] = row.offset + 1
        yield row

    def _rest(self) -> Iterator[ConsoleRow]:
        """Retention may have taken everything up to the ends that were asked for: no later row shows that."""
        for partition, end in self._live_ends.items():
            position = self._positions[partition]
            if position < end:
                self._positions[partition] = end
                yield from self._fill(partition, position, end)

    def _fill(self, partition: int, start: int, end: int) -> Iterator[ConsoleRow]:
        """Offsets without a row are nothing special (markers, compaction), unless the log begins behind them."""
        if self._earliest(partition) <= start:
            return
        assert self._current is not None
        self._current.refresh()
        self._tell_holes(self._current, partition, start, end)
        yield from self._current.read({partition: (start, min(end, self._current.end(partition)))})

    # -- words --------------------------------------------------------------------------------------------------

    def _tell_holes(self, archived: Archived, partition: int, start: int, end: int) -> None:
        for low, high in archived.holes(partition, start, end):
            self._tell_gap(partition, low, high)

    def _tell_gap(self, partition: int, start: int, end: int) -> None:
        what = f"offset {start} is" if end == start + 1 else f"offsets {start} to {end - 1} are"
        self._warn(f"{self._topic}-{partition}: {what} neither archived nor on the broker any more")
