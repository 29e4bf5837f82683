"""A topic's settings in force, as plain attributes: resolved once per change, read on every request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.config.describe import Described, DescribedSynonym
from penstock.config.settings import LONG_MAX, ConfigError, Setting, Source, Value, lookup
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.core.archive_progress import ArchiveProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    values: Mapping[str, Value]
    # What the topic itself was given, as text; everything else follows the broker.
    overrides: Mapping[str, str]
    # `penstock.archive.progress`, taken apart once; None: there is none.
    archive_progress: ArchiveProgress | None

    ack_after: str
    archive_required: bool
    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    replica_lag_max_messages: int
    retention_bytes: int
    retention_ms: int
    retire_grace_ms: int
    retire_to: int | None
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> "TopicConfig":
        """Of what is asked for: `ConfigError` for an unknown name, a value that is not allowed, two that contradict."""
        values = _values(overrides, broker)
        _check_together(values)
        return cls._of(values, overrides)

    @classmethod
    def in_force(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> "TopicConfig":
        """Of what is stored, and was found sound by some broker; with another one's own settings it may contradict.

        That must end no broker, nor keep it from other topics: compaction comes late then, and never too early.
        """
        values = _values(overrides, broker)
        lags = (values["min.compaction.lag.ms"], values["max.compaction.lag.ms"])
        values["max.compaction.lag.ms"] = max(lag for lag in lags if isinstance(lag, int))
        return cls._of(values, overrides)

    @classmethod
    def _of(cls, values: dict[str, Value], overrides: Mapping[str, str]) -> "TopicConfig":
        attributes: dict[str, Any] = {attribute: values[name] for attribute, name in _ATTRIBUTES.items()}
        attributes["segment_bytes"] = values["internal.segment.bytes"] or values["segment.bytes"]
        if "compact" in attributes["cleanup_policy"]:
            # Only sealed segments are compacted: one that stayed active for longer would break the promise.
            attributes["segment_ms"] = min(attributes["segment_ms"], attributes["max_compaction_lag_ms"])
        return cls(
            values=MappingProxyType(values),
            overrides=MappingProxyType(dict(overrides)),
            archive_progress=ArchiveProgress.parse(str(values["penstock.archive.progress"])),
            **attributes,
        )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    def syncs_before_ack(self, replicas: int) -> bool:
        """Whether a record must be on the disk, not only in the page cache, before it is acknowledged.

        Whoever limits `flush.messages` wants a bound on what a power cut takes. Group commit makes the strictest
        bound, none at all, cheaper than counting.
        """
        if self.ack_after == "synced" or self.flush_messages < LONG_MAX:
            return True
        return self.ack_after == "auto" and replicas == 1

    def archived_offset(self, topic_id: bytes, partition: int) -> int:
        """Everything below it is archived: nothing where no progress of this very topic is known."""
        progress = self.archive_progress
        if progress is None or progress.topic_id != topic_id:
            return 0
        return progress.next_offsets.get(partition, 0)

    def archived_epoch(self, partition: int) -> int | None:
        """The leader epoch of the last archived record, where the archive said it."""
        return None if self.archive_progress is None else self.archive_progress.epochs.get(partition)

    def describe(self, broker: BrokerConfig, names: Iterable[str] | None = None) -> list[Described]:
        """For DescribeConfigs; without `names` everything that is not internal. Unknown names are left out."""
        chosen = TOPIC_SETTINGS if names is None else [name for name in names if name in TOPIC_SETTINGS]
        return [
            self._described(TOPIC_SETTINGS[name], broker)
            for name in chosen
            if not TOPIC_SETTINGS[name].internal or name in self.overrides
        ]

    def _described(self, setting: Setting, broker: BrokerConfig) -> Described:
        value = setting.shown(self.values[setting.name])
        synonyms = broker.synonyms_of(setting) if setting.synonyms else ()
        if setting.name in self.overrides:
            synonyms = (DescribedSynonym(setting.name, value, Source.DYNAMIC_TOPIC), *synonyms)
        return Described(
            name=setting.name,
            value=value,
            source=synonyms[0].source if synonyms else Source.DEFAULT,
            type=setting.type,
            read_only=False,
            sensitive=setting.sensitive,
            synonyms=synonyms,
            doc=setting.doc,
        )


def _values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, setting in TOPIC_SETTINGS.items():
        text = overrides.get(name)
        values[name] = broker.topic_default(setting) if text is None else setting.parse(text)
    for name in overrides:
        lookup(TOPIC_SETTINGS, "topic", name)
    return values


def _check_together(values: Mapping[str, Value]) -> None:
    low, high = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )


_RENAMED = {
    "ack_after": "penstock.ack.after",
    "archive_required": "penstock.archive.required",
    "retire_grace_ms": "penstock.retire.grace.ms",
    "retire_to": "penstock.retire.to",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
}
_ATTRIBUTES = {
    field.name: _RENAMED.get(field.name, field.name.replace("_", "."))
    for field in fields(TopicConfig)
    if field.name not in {"values", "overrides", "archive_progress"}
}
