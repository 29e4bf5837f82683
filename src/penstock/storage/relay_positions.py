"""What a log remembers of relays that move records into it (`records.relay`): of each source, how far it is.

One place in the source says all. It is never forgotten while the source is there (`services.relay.positions`). Like
everything that is known of producers it is a function of the log, and in the snapshots.

A source that is no retired partition of the same topic goes by a name: a number that the log's leader gave it in a
position, a control record, before the first batch that goes by it. A name can be given anew once its source is over.
"""

from collections.abc import Collection, Iterator
from struct import Struct

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import BatchHeader, Buffer, InvalidBatch
from penstock.records.relay import (
    NAMED_IDS,
    NOTHING_MOVED,
    Relayed,
    RelayPlace,
    RelaySource,
    names_source,
    producer_fields,
    read_position,
    relay_place,
    relayed_by,
    retired_source,
)
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy

EPOCHS_KEPT = 8  # of a relay's source: as many uncleanly elected leaders may have parted from each other
NO_NAME = -1
_NOWHERE = AppendedBatch(0, 0, -1, -1, -1)
# In place of a producer's epoch: the entry of a snapshot that says whose name it is.
_NAMES = -1
_TOPIC_ID = Struct(">qq")


class RelayPosition:
    """The last position of a relay: how far it has moved the source's records, and which of ours say so."""

    __slots__ = ("batch", "committed_at", "earlier", "name", "place", "quiet_since_ms", "said_at")

    def __init__(
        self,
        place: RelayPlace,
        batch: AppendedBatch,
        said_at: int,
        *,
        name: int = NO_NAME,
        committed_at: int | None = None,
        earlier: tuple[RelayPlace, ...] = (),
    ) -> None:
        self.place = place
        # How far the logs of earlier leader epochs were moved, and are part of the latest; the oldest first.
        self.earlier = earlier
        self.batch = batch
        self.name = name
        # From where on the log tells it: where the batch is, or its name was given.
        self.said_at = said_at
        # The same of the latest of its positions that is known to be committed: this one, or one before it.
        self.committed_at = committed_at
        self.quiet_since_ms = -1

    def places(self) -> tuple[RelayPlace, ...]:
        """The latest first; none before anything was moved."""
        return self.history()[::-1]

    def history(self) -> tuple[RelayPlace, ...]:
        """The same, the latest last."""
        return self.earlier if self.place == NOTHING_MOVED else (*self.earlier, self.place)

    def before(self, moved: Relayed) -> tuple[RelayPlace, ...]:
        """What is earlier, once `moved` is the latest: it may go on from further back than this one came."""
        if moved.epoch <= self.place.epoch:
            return self.earlier
        places = [
            RelayPlace(place.epoch, min(place.number, moved.first - 1))
            for place in (*self.earlier, self.place)
        ]
        return tuple(place for place in places if place.number >= 0)[-EPOCHS_KEPT:]

    def is_committed(self, high_watermark: int) -> bool:
        """Whether no fail-over takes it back any more: only then is what was moved the target's."""
        if self.batch.last_offset < high_watermark:
            self.committed_at = self.said_at
            return True
        return False


class RelayPositions:
    __slots__ = ("_named", "by_source")

    def __init__(self) -> None:
        self.by_source: dict[RelaySource, RelayPosition] = {}
        self._named: dict[int, RelaySource] = {}  # each is in `by_source`, under that name

    def __len__(self) -> int:
        return len(self.by_source)

    def get(self, source: RelaySource) -> RelayPosition | None:
        return self.by_source.get(source)

    def of(self, header: BatchHeader, batch: Buffer | None) -> tuple[RelaySource | None, Relayed]:
        """Whose batch it is, and what of it; None where it goes by a name that is not known."""
        if names_source(header):
            if batch is None:
                raise StorageError("what a relay's position says was not read")
            return read_position(header, batch)
        moved = relayed_by(header)
        return self._named.get(moved.source) if moved.named else retired_source(moved.source), moved

    def free_name(self) -> int:
        return next(name for name in range(len(self._named) + 1) if name not in self._named)

    def check(self, header: BatchHeader, batch: Buffer) -> AppendedBatch | None:
        """None: append it. A batch: the latest that was moved here, which includes this one. Otherwise ApiError."""
        source, moved = self.of(header, batch)
        if source is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{moved.source} is no relay's name here")
        position = self.by_source.get(source)
        known = NOTHING_MOVED if position is None else position.place
        if position is not None and moved.place <= known:
            return position.batch
        if moved.skips or moved.place == NOTHING_MOVED:
            return None
        # In a later epoch the source may have lost what it moved before: then it goes on from further back.
        follows = moved.first == known.number + 1
        if not follows and (moved.epoch == known.epoch or moved.first > known.number):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{moved} of a relay does not follow {known}",
            )
        return None

    def check_sound(self, header: BatchHeader, batch: Buffer) -> None:
        """Whether `record` can remember what it says, and a snapshot can hold it; otherwise ApiError."""
        _, moved = self.of(header, batch)
        if moved.place == NOTHING_MOVED:
            return
        try:
            for number in (moved.first, moved.last):
                producer_fields(moved.source, moved.epoch, number, named=moved.named)
        except ValueError as error:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"what a relay moved: {error}") from error

    def record(self, header: BatchHeader, first_offset: int, batch: Buffer | None) -> None:
        """It was written at `first_offset`."""
        source, moved = self.of(header, batch)
        if source is None:
            # Retention took the position that gave the name. That is said again before, if the relay still runs.
            return
        appended = AppendedBatch(
            header.base_sequence,
            header.last_sequence,
            first_offset,
            first_offset + header.last_offset_delta,
            header.max_timestamp,
        )
        before = self.by_source.get(source)
        said_at = first_offset
        if moved.named and names_source(header):
            self._give_name(moved.source, source)
        elif moved.named and before is not None:
            said_at = before.said_at
        self.by_source[source] = RelayPosition(
            moved.place,
            appended,
            said_at,
            name=moved.source if moved.named else NO_NAME,
            committed_at=None if before is None else before.committed_at,
            earlier=() if before is None else before.before(moved),
        )

    def _give_name(self, name: int, source: RelaySource) -> None:
        known = self._named.get(name)
        if known is not None and known != source:
            del self.by_source[known]  # it was over, or nobody would have given its name to another
        before = self.by_source.get(source)
        if before is not None and before.name != name:
            self._named.pop(before.name, None)
        self._named[name] = source

    def expire(self, now_ms: int, quiet_ms_max: int, living: Collection[RelaySource]) -> None:
        """Forget those that are over for so long."""
        for source, position in list(self.by_source.items()):
            if source in living:
                position.quiet_since_ms = -1
            elif position.quiet_since_ms < 0:
                position.quiet_since_ms = now_ms
            elif now_ms - position.quiet_since_ms >= quiet_ms_max:
                del self.by_source[source]
                self._named.pop(position.name, None)

    def clear(self) -> None:
        self.by_source.clear()
        self._named.clear()

    def copies(self) -> Iterator[ProducerCopy]:
        """As producers of one batch, one for each of the source's leader epochs, the latest of them last.

        Where it has a name, that comes first, in an entry of its own: under the name's id, without an epoch, with
        kind, partition and topic id in place of sequences, first offset and timestamp.
        """
        for source, position in self.by_source.items():
            named = position.name != NO_NAME
            number = position.name if named else source.partition
            if named:
                producer_id, _, _ = producer_fields(number, 0, 0, named=True)
                upper, lower = _TOPIC_ID.unpack(source.topic_id)
                said = AppendedBatch(source.kind, source.partition, upper, position.said_at, lower)
                yield ProducerCopy(producer_id, _NAMES, -1, (said,))
            for place in position.history():
                producer_id, epoch, last = producer_fields(number, *place, named=named)
                batch = position.batch if place is position.place else _NOWHERE
                batch = batch._replace(last_sequence=last)
                yield ProducerCopy(producer_id, epoch, batch.timestamp, (batch,))

    def add(self, copy: ProducerCopy) -> None:
        """What `copies` made, in its order or in that of ids."""
        batch, name = copy.batches[-1], NO_NAME
        number, place = relay_place(copy.producer_id, copy.epoch, batch.last_sequence)
        source = retired_source(number)
        if names_in_snapshot(copy):
            topic_id = _TOPIC_ID.pack(batch.first_offset, batch.timestamp)
            source = RelaySource(batch.first_sequence, topic_id, batch.last_sequence)
            said = _NOWHERE._replace(first_offset=batch.last_offset, last_offset=batch.last_offset)
            self._named[number] = source
            self.by_source[source] = RelayPosition(NOTHING_MOVED, said, batch.last_offset, name=number)
            return
        if copy.producer_id >= NAMED_IDS:
            if number not in self._named:
                return  # given behind where this ends
            name, source = number, self._named[number]
        before = self.by_source.get(source)
        earlier = () if before is None else before.history()
        said_at = batch.first_offset if before is None or name == NO_NAME else before.said_at
        self.by_source[source] = RelayPosition(place, batch, said_at, name=name, earlier=earlier)


def names_in_snapshot(copy: ProducerCopy) -> bool:
    """Whether it is no producer at all, but says which source goes by the name that its id holds."""
    return copy.producer_id >= NAMED_IDS and copy.epoch == _NAMES
