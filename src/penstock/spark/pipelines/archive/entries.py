"""One manifest entry: what a round, a compaction or a new owner did to the lake, as JSON.

{"format": 1, "number": 12, "kind": "round", "round": "0000000012-4f1c…", "written": "2025-01-31T07:00:00Z",
 "topics": [{"topic": "orders", "id": "u8Yw…", "partitions": {"0": [1000, 2000]}, "lost": {"0": [[900, 1000]]},
             "epochs": {"0": [[3, 1700], [4, 2000]]}, "parted": {"0": 1000}, "branches": {"0": 7},
             "cluster": "kX2b…"}],
 "added": [{"path": "topic=orders/date=…/…parquet", "staged": "_penstock/staging/…", "topic": "orders",
            "id": "u8Yw…", "rows": 1000, "bytes": 52044, "offsets": {"0": [1000, 1999]}}],
 "removed": ["topic=orders/date=…/…parquet"]}

"given_up", where it is there, has files as "added" has them: they were lost, with what they held.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.spark.pipelines.archive.errors import ManifestError

FORMAT = 3
# What versions read that know logs that parted from their archive, but not that these come back; or neither of them.
FORMAT_BEFORE_BRANCHES = 2
FORMAT_BEFORE_PARTING = 1
# What a topic is called that has no id: brokers before 2.8 have none.
NO_ID = "-"

# [first offset, the one behind the last]
Span = tuple[int, int]
# (leader epoch, the offset behind the last of it)
Mark = tuple[int, int]
UNKNOWN_EPOCH = -1
Kind = Literal["round", "compaction", "fence", "loss"]


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    path: str
    topic: str
    topic_id: str
    rows: int
    size_bytes: int
    # Per partition the first and the last offset in it that count.
    offsets: Mapping[int, tuple[int, int]]
    # Where it lies until it has moved.
    staged: str | None = None
    # Rows of these partitions count below these offsets only: the log has other ones behind.
    limits: Mapping[int, int] = field(default_factory=dict)
    # For them what is there in truth, and the branch that it is of: it counts again when the log has it again.
    held: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    branches: Mapping[int, int] = field(default_factory=dict)
    rows_held: int = 0
    # Limits of an earlier version, which did not note what there is behind: they are for good.
    caps: Mapping[int, int] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    def on(self, partition: int, branch: int | None) -> "ArchivedFile":
        """Rows of a partition are of a branch, or of what counts."""
        others = {at: of for at, of in self.branches.items() if at != partition}
        return replace(self, branches=others if branch is None else {**others, partition: branch})

    def below(self, partition: int, limit: int | None) -> "ArchivedFile":
        """Rows of a partition count only below an offset, or all of them; of its rows the most there can be."""
        first, last = self.held.get(partition) or self.offsets.get(partition, (0, -1))
        if limit is not None and last < limit:
            limit = None
        if limit is None and partition not in self.held:
            return self
        rows_held = self.rows_held if self.held else self.rows
        held, limits, offsets = dict(self.held), dict(self.limits), dict(self.offsets)
        for mine in (held, limits, offsets):
            mine.pop(partition, None)
        if limit is None:
            offsets[partition] = first, last
            limits |= {at: cap for at, cap in self.caps.items() if at == partition}
        else:
            held[partition], limits[partition] = (first, last), limit
            if first < limit:
                offsets[partition] = first, limit - 1
        offsets = dict(sorted(offsets.items()))
        counting = sum(high - low + 1 for low, high in offsets.values())
        rows = min(rows_held, counting) if limits else rows_held
        return replace(
            self,
            rows=rows,
            offsets=offsets,
            limits=limits,
            held=held,
            rows_held=rows_held if held else 0,
        )

    def as_json(self) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "path": self.path,
            "topic": self.topic,
            "id": self.topic_id,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "offsets": {str(partition): list(span) for partition, span in self.offsets.items()},
        }
        if self.limits:
            tree["limits"] = {str(partition): limit for partition, limit in self.limits.items()}
        if self.held:
            tree["held"] = {str(partition): list(span) for partition, span in self.held.items()}
            tree["branches"] = {str(partition): number for partition, number in self.branches.items()}
            tree["rows_held"] = self.rows_held
        if self.caps:
            tree["caps"] = {str(partition): limit for partition, limit in self.caps.items()}
        return tree if self.staged is None else tree | {"staged": self.staged}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "ArchivedFile":
        held = {int(partition): _span(span) for partition, span in tree.get("held", {}).items()}
        limits = _numbers(tree.get("limits", {}))
        caps = _numbers(tree["caps"]) if "caps" in tree else limits
        return cls(
            path=str(tree["path"]),
            topic=str(tree["topic"]),
            topic_id=str(tree["id"]),
            rows=int(tree["rows"]),
            size_bytes=int(tree["bytes"]),
            offsets={int(partition): _span(span) for partition, span in tree["offsets"].items()},
            staged=tree.get("staged"),
            limits=limits,
            held=held,
            branches=_numbers(tree.get("branches", {})),
            rows_held=int(tree.get("rows_held", 0)),
            caps={at: limit for at, limit in caps.items() if at not in held or "caps" in tree},
        )


@dataclass(frozen=True, slots=True)
class TopicRound:
    """What a round took of one topic; `lost` was gone from the broker before it came.

    `epochs` has the leader epochs of what was taken, each with its end, where the broker has them to tell. `parted`:
    from here on the log is another one than what counted of it before, which no longer counts; up to there it is the
    branch of the number in `branches`, where there is one. `cluster` is the id of the one that it is of, if known.
    """

    topic: str
    topic_id: str
    partitions: Mapping[int, Span]
    lost: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    epochs: Mapping[int, tuple[Mark, ...]] = field(default_factory=dict)
    parted: Mapping[int, int] = field(default_factory=dict)
    branches: Mapping[int, int] = field(default_factory=dict)
    cluster: str = ""

    def as_json(self) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "topic": self.topic,
            "id": self.topic_id,
            "partitions": {str(partition): list(span) for partition, span in self.partitions.items()},
            "lost": {
                str(partition): [list(span) for span in spans] for partition, spans in self.lost.items()
            },
        }
        if self.epochs:
            tree["epochs"] = {str(at): [list(mark) for mark in marks] for at, marks in self.epochs.items()}
        if self.parted:
            tree["parted"] = {str(at): offset for at, offset in self.parted.items()}
        if self.branches:
            tree["branches"] = {str(at): number for at, number in self.branches.items()}
        if self.cluster:
            tree["cluster"] = self.cluster
        return tree

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "TopicRound":
        partitions = {int(partition): _span(span) for partition, span in tree["partitions"].items()}
        return cls(
            topic=str(tree["topic"]),
            topic_id=str(tree["id"]),
            partitions=partitions,
            lost={int(partition): tuple(map(_span, spans)) for partition, spans in tree["lost"].items()},
            epochs={
                int(at): tuple(map(_span, marks))
                if isinstance(marks, list)
                # For a day only the epoch of the last offset was noted.
                else ((int(marks), partitions[int(at)][1]),)
                for at, marks in tree.get("epochs", {}).items()
            },
            parted=_numbers(tree.get("parted", {})),
            branches=_numbers(tree.get("branches", {})),
            cluster=str(tree.get("cluster", "")),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    kind: Kind
    round: str
    written: str
    topics: tuple[TopicRound, ...] = ()
    added: tuple[ArchivedFile, ...] = ()
    removed: tuple[str, ...] = ()
    given_up: tuple[ArchivedFile, ...] = ()

    def encode(self) -> bytes:
        parted = any(topic.parted for topic in self.topics)
        turned = any(topic.branches for topic in self.topics)
        tree = {
            "format": FORMAT if turned else FORMAT_BEFORE_BRANCHES if parted else FORMAT_BEFORE_PARTING,
            "number": self.number,
            "kind": self.kind,
            "round": self.round,
            "written": self.written,
            "topics": [topic.as_json() for topic in self.topics],
            "added": [file.as_json() for file in self.added],
            "removed": list(self.removed),
        }
        if self.given_up:
            tree["given_up"] = [file.as_json() for file in self.given_up]
        return json.dumps(tree, ensure_ascii=False, indent=1).encode()

    @classmethod
    def decode(cls, where: str, content: bytes) -> "Entry":
        tree = decode_tree(where, content)
        try:
            return cls(
                number=int(tree["number"]),
                kind=tree["kind"],
                round=str(tree["round"]),
                written=str(tree["written"]),
                topics=tuple(map(TopicRound.from_json, tree["topics"])),
                added=tuple(map(ArchivedFile.from_json, tree["added"])),
                removed=tuple(map(str, tree["removed"])),
                given_up=tuple(map(ArchivedFile.from_json, tree.get("given_up", ()))),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(where, f"{type(error).__name__}: {error}") from error


def decode_tree(where: str, content: bytes) -> dict[str, Any]:
    """JSON of a format that we know; ManifestError names the file."""
    try:
        tree = json.loads(content)
    except ValueError as error:
        raise _damaged(where, str(error)) from error
    if not isinstance(tree, dict) or not isinstance(tree.get("format"), int):
        raise _damaged(where, "it is no manifest entry")
    if tree["format"] > FORMAT:
        raise ManifestError(
            f"{where} was written by a later version (format {tree['format']}): upgrade penstock to read it"
        )
    return tree


def _damaged(where: str, why: str) -> ManifestError:
    return ManifestError(
        f"the manifest file {where} is damaged ({why}): bring it back from a copy of the lake"
    )


def _span(pair: Any) -> Span:
    first, last = pair
    return int(first), int(last)


def _numbers(tree: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in tree.items()}
