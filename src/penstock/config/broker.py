"""The broker's settings in force: four layers, resolved once per change into plain attributes.

From strong to weak: dynamic for this broker, dynamic for all brokers, given at the start (flag, environment,
file), declared default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.describe import Described, DescribedSynonym
from penstock.config.listeners import ListenerConfig, resolve_listeners
from penstock.config.settings import ConfigError, Setting, Source, Update, Value, lookup
from penstock.core.error_codes import ErrorCode

Layer = Mapping[str, str]
_EMPTY: Layer = MappingProxyType({})
_NODE_ID = "1"
# What Kafka's tools expect every broker to have been given.
_DERIVED: Mapping[str, tuple[str, ...]] = {"process.roles": ("broker", "controller")}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Attributes are the settings the code asks for by name; `values` has them all, typed."""

    values: Mapping[str, Value]
    given: Layer
    dynamic_default: Layer
    dynamic: Layer

    node_id: int
    broker_rack: str | None
    penstock_host_label: str | None
    log_dirs: tuple[str, ...]
    listeners: tuple[ListenerConfig, ...]
    inter_broker_listener_name: str
    zookeeper_connect: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int | None
    penstock_zookeeper_digest: str | None
    penstock_console_port: int
    penstock_console_host: str | None
    penstock_ack_after: str
    penstock_archive_held_bytes_alarm: int
    penstock_idle_poll_us: int
    socket_request_max_bytes: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    queued_max_requests: int
    queued_max_request_bytes: int
    num_io_threads: int
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    max_request_partition_size_limit: int
    message_max_bytes: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_lag_time_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    penstock_heal_grace_ms: int
    penstock_heal_lost_percent_max: int
    penstock_disk_free_percent_min: int
    penstock_moves_max: int
    penstock_fill_empty_brokers: bool
    penstock_retire_check_interval_ms: int
    controlled_shutdown_enable: bool
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    log_retention_check_interval_ms: int
    log_initial_task_delay_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    penstock_transactions_enable: bool
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int

    @classmethod
    def resolve(
        cls, given: Layer = _EMPTY, *, dynamic_default: Layer = _EMPTY, dynamic: Layer = _EMPTY
    ) -> "BrokerConfig":
        """Raises `ConfigError` for an unknown name or a value that is not allowed."""
        given = _with_defaults_derived(given)
        values: dict[str, Value] = {name: setting.default for name, setting in BROKER_SETTINGS.items()}
        for layer in (given, dynamic_default, dynamic):
            for name, text in layer.items():
                values[name] = lookup(BROKER_SETTINGS, "broker", name).parse(text)
        attributes: dict[str, Any] = {attribute: values[name] for attribute, name in _ATTRIBUTES.items()}
        attributes["log_dirs"] = values["log.dirs"] or values["log.dir"]
        listeners, inter_broker = resolve_listeners(values, given)
        attributes |= {"listeners": listeners, "inter_broker_listener_name": inter_broker}
        return cls(
            values=MappingProxyType(values),
            given=MappingProxyType(dict(given)),
            dynamic_default=MappingProxyType(dict(dynamic_default)),
            dynamic=MappingProxyType(dict(dynamic)),
            **attributes,
        )

    def with_changes(
        self, *, dynamic_default: Layer | None = None, dynamic: Layer | None = None
    ) -> "BrokerConfig":
        """The same broker after its dynamic layers were replaced; raises `ConfigError` and changes nothing."""
        for layer, per_broker in ((dynamic_default, False), (dynamic, True)):
            check_dynamic(layer or _EMPTY, per_broker=per_broker)
        return BrokerConfig.resolve(
            self.given,
            dynamic_default=self.dynamic_default if dynamic_default is None else dynamic_default,
            dynamic=self.dynamic if dynamic is None else dynamic,
        )

    def topic_default(self, setting: Setting) -> Value:
        """What a topic gets that does not say: the first synonym that is set here, else the declared default."""
        for synonym in setting.synonyms:
            value = self.values[synonym.name]
            if value is not None:
                return synonym.to_topic(value)
        return setting.default

    def without_effect(self) -> list[str]:
        """What was set, to something else than the default, and is not asked for here: `name=value`."""
        set_ = {**self.given, **self.dynamic_default, **self.dynamic}
        return [
            f"{name}={text}"
            for name, text in sorted(set_.items())
            if BROKER_SETTINGS[name].without_effect
            and self.values[name] != _DERIVED.get(name, BROKER_SETTINGS[name].default)
        ]

    def describe(self, names: Iterable[str] | None = None) -> list[Described]:
        """For DescribeConfigs of this broker; without `names` everything. Unknown names are left out."""
        chosen = BROKER_SETTINGS if names is None else [name for name in names if name in BROKER_SETTINGS]
        return [
            self._described(BROKER_SETTINGS[name])
            for name in chosen
            if not BROKER_SETTINGS[name].internal or name in self.given
        ]

    def describe_cluster_default(self, names: Iterable[str] | None = None) -> list[Described]:
        """For DescribeConfigs of the broker named "": only what was set for all brokers."""
        wanted = None if names is None else set(names)
        described = []
        for name, text in sorted(self.dynamic_default.items()):
            if wanted is None or name in wanted:
                setting = BROKER_SETTINGS[name]
                value = setting.shown(setting.parse(text))
                synonym = DescribedSynonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)
                described.append(_entry(setting, value, (synonym,)))
        return described

    def synonyms_of(self, setting: Setting) -> tuple[DescribedSynonym, ...]:
        """Every layer's word on a setting and its synonyms, strongest first.

        As in Kafka, what precedes the first mention of the leading name is left out, so a retention that is
        given in hours alone shows no synonyms.
        """
        names = [synonym.name for synonym in setting.synonyms] or [setting.name]
        found: list[DescribedSynonym] = []
        layers = (
            (self.dynamic, Source.DYNAMIC_BROKER),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
            (self.given, Source.STATIC_BROKER),
        )
        for layer, source in layers:
            for name in names:
                if name in layer:
                    declared = BROKER_SETTINGS[name]
                    found.append(DescribedSynonym(name, declared.shown(declared.parse(layer[name])), source))
        for name in names:
            declared = BROKER_SETTINGS[name]
            if declared.default is not None:
                found.append(DescribedSynonym(name, declared.shown(declared.default), Source.DEFAULT))
        lead = setting.name if setting.name in names else names[0]
        while found and found[0].name != lead:
            found.pop(0)
        return tuple(found)

    def _described(self, setting: Setting) -> Described:
        return _entry(setting, setting.shown(self.values[setting.name]), self.synonyms_of(setting))


def check_dynamic(layer: Layer, *, per_broker: bool) -> None:
    """Whether a running broker may be given these at this level.

    Kafka answers INVALID_REQUEST here and INVALID_CONFIG for topics; clients see the same from us.
    """
    try:
        settings = [lookup(BROKER_SETTINGS, "broker", name) for name in layer]
    except ConfigError as error:
        raise _refused(str(error)) from error
    fixed = [setting.name for setting in settings if setting.update is Update.READ_ONLY]
    if fixed:
        raise _refused(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    single = [setting.name for setting in settings if setting.update is Update.PER_BROKER]
    if single and not per_broker:
        raise _refused(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(single)}]"
        )
    try:
        for setting in settings:
            setting.parse(layer[setting.name])
    except ConfigError as error:
        raise _refused(str(error)) from error


def _refused(message: str) -> ConfigError:
    return ConfigError(message, ErrorCode.INVALID_REQUEST)


def _entry(setting: Setting, value: str | None, synonyms: tuple[DescribedSynonym, ...]) -> Described:
    return Described(
        name=setting.name,
        value=value,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        type=setting.type,
        read_only=setting.update is Update.READ_ONLY,
        sensitive=setting.sensitive,
        synonyms=synonyms,
        doc=setting.doc,
    )


def _with_defaults_derived(given: Layer) -> dict[str, str]:
    """`node.id` also goes by `broker.id`."""
    layer = {"process.roles": ",".join(_DERIVED["process.roles"]), **given}
    number = layer.get("node.id", layer.get("broker.id", _NODE_ID))
    if layer.get("broker.id", number) != number:
        raise ConfigError(
            f"broker.id is {layer['broker.id']} but node.id is {number}: give one, or the same twice"
        )
    layer["node.id"] = layer["broker.id"] = number
    return layer


# Not the values of single settings.
_MADE = {"values", "given", "dynamic_default", "dynamic", "listeners"}
_ATTRIBUTES = {
    field.name: field.name.replace("_", ".") for field in fields(BrokerConfig) if field.name not in _MADE
}
