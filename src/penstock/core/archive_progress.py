"""How far an archive has taken a topic: the value of the topic setting `penstock.archive.progress`.

    <topic id>[/<lake id>] <partition>:<next offset>[:<leader epoch>][,<partition>:<next offset>[:<leader epoch>]...]

The archive writes it once its manifest is durable; retention reads it. Everything below a partition's next offset is
safely archived. The leader epoch is that of the last archived record: a log that lost its end, by an unclean election
or a power cut, gives the same offsets to other records under another epoch, and by it the two are told apart. Where an
archive does not say it, only the offset counts. The id is the topic's, as Kafka prints ids (16 bytes in URL-safe base64
without padding), so that what was archived of a deleted topic says nothing about another one of the same name. A
partition that is not named has no progress. The empty text is no progress at all. The lake is the one that has it: what
another one has is no reason to delete anything.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

# As many partitions as one request may create fit; the metadata is not made for larger values.
TEXT_CHARACTERS_MAX = 256 * 1024
_ID_CHARACTERS = 22
_OFFSET_MAX = 2**63 - 1
_EPOCH_MAX = 2**31 - 1
_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_LAKE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ENTRY = re.compile(r"([0-9]{1,10}):([0-9]{1,19})(?::([0-9]{1,10}))?", re.ASCII)
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    topic_id: bytes
    next_offsets: Mapping[int, int]
    # Of the last archived record of a partition; one that is not there is not known.
    epochs: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    lake: str = ""  # empty: it does not say, as versions before 0.2 did not

    @classmethod
    def parse(cls, text: str) -> "ArchiveProgress | None":
        """None for the empty text; `ValueError` says what is wrong with any other."""
        if not text:
            return None
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ValueError(f"it has more than {TEXT_CHARACTERS_MAX} characters")
        ids, _, entries = text.partition(" ")
        id_text, has_lake, lake = ids.partition("/")
        if has_lake and not _LAKE.fullmatch(lake):
            raise ValueError(f"{_short(lake)} is not the id of a lake")
        next_offsets: dict[int, int] = {}
        epochs: dict[int, int] = {}
        topic_id = _id_bytes(id_text)
        for entry in entries.split(","):
            found = _ENTRY.fullmatch(entry)
            if found is None:
                raise ValueError(
                    f"{_short(entry)} is not <partition>:<next offset>[:<leader epoch>]; "
                    "it looks like '<topic id> 0:1000:3,1:77:0'"
                )
            partition, offset = int(found[1]), int(found[2])
            if offset > _OFFSET_MAX:
                raise ValueError(f"{offset} is not an offset")
            if partition in next_offsets:
                raise ValueError(f"partition {partition} is there twice")
            next_offsets[partition] = offset
            if found[3] is not None:
                epochs[partition] = int(found[3])
                if epochs[partition] > _EPOCH_MAX:
                    raise ValueError(f"{found[3]} is not a leader epoch")
        return cls(topic_id, MappingProxyType(next_offsets), MappingProxyType(epochs), lake)

    def __str__(self) -> str:
        entries = ",".join(self._entry(partition) for partition in sorted(self.next_offsets))
        lake = f"/{self.lake}" if self.lake else ""
        return f"{id_text(self.topic_id)}{lake} {entries}"

    def _entry(self, partition: int) -> str:
        entry = f"{partition}:{self.next_offsets[partition]}"
        epoch = self.epochs.get(partition)
        return entry if epoch is None else f"{entry}:{epoch}"

    def may_be_of(self, lake: str) -> bool:
        """Whether it is what that lake has, or does not say which one's it is."""
        return self.lake in ("", lake)

    def with_others(self, stored: "ArchiveProgress | None", partitions: Iterable[int]) -> "ArchiveProgress":
        """The same, with what is stored of some other partitions of the topic."""
        if stored is None or stored.topic_id != self.topic_id or not stored.may_be_of(self.lake):
            return self
        others = {at for at in partitions if at in stored.next_offsets and at not in self.next_offsets}
        offsets = {at: stored.next_offsets[at] for at in others}
        epochs = {at: stored.epochs[at] for at in others if at in stored.epochs}
        return replace(
            self,
            next_offsets=MappingProxyType({**self.next_offsets, **offsets}),
            epochs=MappingProxyType({**self.epochs, **epochs}),
        )

    def lowered(self, ends: Mapping[int, tuple[int, int | None]]) -> "ArchiveProgress":
        """The same, but for no partition beyond the (next offset, leader epoch before it) given here."""
        lower = {at: end for at, (end, _) in ends.items() if end < self.next_offsets.get(at, 0)}
        epochs = {at: epoch for at, epoch in self.epochs.items() if at not in lower}
        epochs |= {at: epoch for at in lower if (epoch := ends[at][1]) is not None}
        return replace(
            self,
            next_offsets=MappingProxyType({**self.next_offsets, **lower}),
            epochs=MappingProxyType(epochs),
        )


def id_text(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _id_bytes(text: str) -> bytes:
    if _ID.fullmatch(text):
        topic_id = base64.urlsafe_b64decode(text + "==")
        # Base64 has several spellings of the same bytes; only the one that ids are printed in counts.
        if id_text(topic_id) == text:
            return topic_id
    raise ValueError(f"{_short(text)} is not a topic id, which has {_ID_CHARACTERS} characters of base64")


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
