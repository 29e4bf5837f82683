"""The cluster as one broker sees it: the tree's nodes as plain objects, kept current change by change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.coordination.ids import id_bytes
from penstock.coordination.node_format import MetadataError
from penstock.coordination.nodes import (
    BROKER_CONFIGS,
    BROKERS,
    CLUSTER,
    CONTROLLER,
    DEFAULT_BROKER,
    LIVES,
    NONE_REMOVED,
    NOTHING_UNKNOWN,
    PARTITIONS,
    SECRET,
    TOPICS,
    PartitionState,
    Removed,
    TopicRecord,
    decode_cluster,
    decode_configs,
    decode_controller,
    decode_partition,
    decode_secret,
    decode_topic,
)
from penstock.coordination.registration import BrokerRegistration, Life, decode_broker, decode_life
from penstock.coordination.tree import Change, FeedGapError, Node, Snapshot

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]
    # The version of the topic's node, which guards writes to it.
    version: int
    # See `TopicRecord`.
    first_epoch: int = 0
    # How many of the partitions clients are told of: all, but for retired nobody reads from any more.
    shown: int = 0
    # See `TopicRecord`.
    removed: Mapping[int, Removed] = field(default_factory=lambda: NONE_REMOVED)
    # See `TopicRecord`.
    unknown: Mapping[str, Any] = field(default_factory=lambda: NOTHING_UNKNOWN)


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """What a change meant: names and numbers to look up, before and after."""

    # Created, or changed in partitions, leaders or configs.
    topics: tuple[Topic, ...] = ()
    # Deleted; also the old one of a topic that was deleted and made again in one change.
    topics_gone: tuple[Topic, ...] = ()
    # Of the first those that are new, or have another number of partitions than before.
    topics_resized: tuple[Topic, ...] = ()
    brokers: bool = False  # who lives, how, and who is controller
    broker_configs: bool = False


class ClusterImage:
    """Read it freely, never keep a `Topic` across an await without asking again; only the store changes it."""

    def __init__(self) -> None:
        self.number = 0
        # Raised by every change, whatever it says and wherever it comes from: what was concluded from the image holds
        # as long as this is the same. (`number` may stay, when a snapshot turns out to be ahead of it.)
        self.changes = 0
        self.cluster_id = ""
        self.secret = b""  # of the cluster; empty: not known, so nobody can prove anything with it
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.lives: dict[int, Life] = {}
        self.controller = NOBODY
        self.broker_configs: dict[int, dict[str, str]] = {}
        self.default_broker_configs: dict[str, str] = {}
        self._names: tuple[int, list[str]] = (0, [])  # of topics in their order, and as of which change
        # Raw material and freshness, by path.
        self._records: dict[str, TopicRecord] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._modified: dict[str, int] = {}

    def all_topics(self) -> list[Topic]:
        """For who tells clients what there is, or looks at names and settings."""
        return list(self.topics.values())

    def stored_topics(self) -> list[Topic]:
        """Those with partitions of their own: for who places, leads, opens, moves or counts them.

        Today all. A topic that stores nothing (a view of another one) is not among them.
        """
        return list(self.topics.values())

    def topic_names(self) -> list[str]:
        """Of all topics, in their order. Not to be changed: it is the same list until the image changes."""
        if self._names[0] != self.changes:
            self._names = self.changes, sorted(self.topics)
        return self._names[1]

    def check_cluster(self, snapshot: Snapshot) -> None:
        """MetadataError for one of another cluster: what that does not know of would be deleted here."""
        node = snapshot.nodes.get(CLUSTER)
        found = "(none)" if node is None else decode_cluster(CLUSTER, node)
        if self.cluster_id not in ("", found):
            raise MetadataError(
                f"the coordination store is that of cluster {found}, not of {self.cluster_id}: was it moved or wiped?"
            )

    def replace(self, snapshot: Snapshot) -> ImageDelta:
        """Start over from a snapshot; the delta says what that changed. What cannot be read changes nothing."""
        dirty = _Dirty()
        fresh = ClusterImage()
        for path, node in snapshot.nodes.items():
            fresh._take(path, node, dirty)
        self.changes += 1
        old = dict(self.topics)
        self.topics.clear()
        self.topics_by_id.clear()
        for own, taken in (
            (self.brokers, fresh.brokers),
            (self.lives, fresh.lives),
            (self.broker_configs, fresh.broker_configs),
            (self.default_broker_configs, fresh.default_broker_configs),
            (self._records, fresh._records),
            (self._partitions, fresh._partitions),
            (self._modified, fresh._modified),
        ):
            # In place: readers hold on to these dictionaries.
            own.clear()
            own.update(taken)  # type: ignore[arg-type]
        self.cluster_id, self.controller, self.number = fresh.cluster_id, fresh.controller, snapshot.number
        self.secret = fresh.secret
        self._rebuild(dirty)
        gone = tuple(topic for name, topic in old.items() if not _same(self.topics.get(name), topic))
        resized = tuple(topic for topic in self.topics.values() if _is_resized(topic, old.get(topic.name)))
        return ImageDelta(tuple(self.topics.values()), gone, resized, brokers=True, broker_configs=True)

    def apply(self, change: Change) -> ImageDelta:
        """Apply the next change; one that is known already is skipped, a missing one raises `FeedGapError`."""
        if change.number <= self.number:
            return ImageDelta()
        if change.previous > self.number:
            raise FeedGapError(
                f"change {change.number} follows {change.previous}, but {self.number} was the last"
            )
        self.changes += 1
        dirty = _Dirty()
        for event in change.events:
            # A snapshot may have been ahead of its number here.
            if change.number >= self._modified.get(event.path, 0):
                self._take(event.path, event.node, dirty)
        self.number = change.number
        return self._rebuild(dirty)

    def orphans(self) -> list[bytes]:
        """Topic ids that have partitions but no topic: what interrupted creations and deletions left behind."""
        return [topic_id for topic_id in self._partitions if topic_id not in self.topics_by_id]

    def partition_numbers(self, topic_id: bytes) -> list[int]:
        """All there are in the tree, whether or not the topic counts them yet."""
        return sorted(self._partitions.get(topic_id, ()))

    def _take(self, path: str, node: Node | None, dirty: "_Dirty") -> None:
        if node is None:
            self._modified.pop(path, None)
        else:
            self._modified[path] = node.modified
        parent, _, name = path.rpartition("/")
        if parent == TOPICS:
            self._take_topic(path, name, node, dirty)
        elif parent.startswith(PARTITIONS + "/"):
            self._take_partition(path, id_bytes(parent.rpartition("/")[2]), int(name), node, dirty)
        elif parent == PARTITIONS:
            if node is None:
                self._partitions.pop(id_bytes(name), None)
            else:
                self._partitions.setdefault(id_bytes(name), {})
        elif parent == BROKERS:
            dirty.brokers = True
            if node is None:
                self.brokers.pop(int(name), None)
            else:
                self.brokers[int(name)] = decode_broker(path, node)
        elif parent == BROKER_CONFIGS:
            dirty.broker_configs = True
            self._take_configs(path, name, node)
        elif parent == LIVES:
            dirty.brokers = True
            if node is None:
                self.lives.pop(int(name), None)
            else:
                self.lives[int(name)] = decode_life(path, node)
        elif path == CONTROLLER:
            dirty.brokers = True
            self.controller = NOBODY if node is None else decode_controller(path, node)
        elif path == CLUSTER and node is not None:
            self.cluster_id = decode_cluster(path, node)
        elif path == SECRET:
            self.secret = b"" if node is None else decode_secret(path, node)

    def _take_topic(self, path: str, name: str, node: Node | None, dirty: "_Dirty") -> None:
        dirty.topics[name] = None
        if node is None:
            self._records.pop(name, None)
        else:
            self._records[name] = decode_topic(path, node)

    def _take_partition(
        self, path: str, topic_id: bytes, partition: int, node: Node | None, dirty: "_Dirty"
    ) -> None:
        states = self._partitions.setdefault(topic_id, {})
        if node is None:
            states.pop(partition, None)
        else:
            states[partition] = decode_partition(path, node)
        topic = self.topics_by_id.get(topic_id)
        if topic is not None:
            dirty.topics[topic.name] = None

    def _take_configs(self, path: str, name: str, node: Node | None) -> None:
        configs = {} if node is None else decode_configs(path, node)
        if name == DEFAULT_BROKER:
            self.default_broker_configs.clear()
            self.default_broker_configs.update(configs)
        elif node is None:
            self.broker_configs.pop(int(name), None)
        else:
            self.broker_configs[int(name)] = configs

    def _rebuild(self, dirty: "_Dirty") -> ImageDelta:
        """Once per change, not per partition: a change may touch thousands of one topic."""
        changed, gone, resized = [], [], []
        for name in dirty.topics:
            old, new = self.topics.get(name), self._compose(name)
            if old is not None and not _same(new, old):
                gone.append(old)
                del self.topics[name]
                del self.topics_by_id[old.id]
            if new is not None:
                changed.append(new)
                if _is_resized(new, old):
                    resized.append(new)
                self.topics[name] = self.topics_by_id[new.id] = new
        return ImageDelta(tuple(changed), tuple(gone), tuple(resized), dirty.brokers, dirty.broker_configs)

    def _compose(self, name: str) -> Topic | None:
        record = self._records.get(name)
        if record is None:
            return None
        states = self._partitions.get(record.id, {})
        if any(partition not in states for partition in range(record.partitions)):
            # Seen while it is being deleted: the change that says so is on its way.
            return None
        partitions = tuple(states[partition] for partition in range(record.partitions))
        return Topic(
            name,
            record.id,
            partitions,
            record.configs,
            record.version,
            record.first_epoch,
            _shown(partitions),
            record.removed,
            record.unknown,
        )


def _is_resized(new: Topic, old: Topic | None) -> bool:
    return old is None or old.id != new.id or len(new.partitions) != len(old.partitions)


def _shown(partitions: tuple[PartitionState, ...]) -> int:
    shown = len(partitions)
    while shown and partitions[shown - 1].hidden:
        shown -= 1
    return shown


class _Dirty:
    def __init__(self) -> None:
        self.topics: dict[str, None] = {}
        self.brokers = False
        self.broker_configs = False


def _same(new: Topic | None, old: Topic) -> bool:
    return new is not None and new.id == old.id
