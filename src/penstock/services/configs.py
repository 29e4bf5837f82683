"""Settings that change while the broker runs: shown, altered, kept in the metadata, in force at once.

A change is decided against what is stored, checked as a whole, written, and only then applied; after a restart the
stored layers are applied before the first topic is opened.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.config.alter import Alteration, altered
from penstock.config.broker import BrokerConfig, check_dynamic
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.describe import Described
from penstock.config.live import LiveConfig
from penstock.config.settings import INT_MAX, ConfigError
from penstock.config.topic import TopicConfig
from penstock.config.topic_settings import TOPIC_SETTINGS
from penstock.controller.retiring import to_freeze
from penstock.coordination.image import ClusterImage, ImageDelta
from penstock.coordination.metadata import MetadataStore
from penstock.coordination.tree import ConflictError
from penstock.core.archive_progress import ArchiveProgress
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError
from penstock.core.turns import give_way
from penstock.replication.table import PartitionTable
from penstock.services import loggers
from penstock.services.hosting.hosting import Hosting
from penstock.services.maintenance.archive_progress import PROGRESS, AskLeader, check_progress, ends_elsewhere
from penstock.services.retiring import check_retirement
from penstock.services.topics.names import check_topic_name
from penstock.services.topics.service import as_api_error

logger = logging.getLogger(__name__)

# Against other processes only versions guard; each lost round is somebody else's progress, so few are enough.
_ROUNDS_MAX = 5
# How long a request to retire partitions waits for their leaders.
_RETIRED_SECONDS = 5.0
# Changes that are decided before others get their turn, where none of them has to wait: about 1 ms.
_ALTERED_AT_ONCE = 10
# Ids are 32 bits wide; more digits would only be slow to convert.
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
# What Kafka's client shows for INVALID_REQUEST without a message of its own.
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to "
    "an incompatible broker. See the broker logs for more details."
)


class ResourceType(IntEnum):
    """The protocol's numbers, of what has settings here."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


@dataclass(frozen=True, slots=True)
class WantedChange:
    resource_type: int
    resource_name: str
    changes: Sequence[Alteration]

    @property
    def resource(self) -> tuple[int, str]:
        return self.resource_type, self.resource_name


class ConfigService:
    def __init__(
        self,
        config: LiveConfig,
        metadata: MetadataStore,
        hosting: Hosting,
        table: PartitionTable,
        ask_leader: AskLeader,
    ) -> None:
        self._live = config
        self._metadata = metadata
        self._hosting = hosting
        self._table = table
        self._ask_leader = ask_leader
        self._told: set[str] = set()
        self._tell_without_effect()

    @property
    def _config(self) -> BrokerConfig:
        return self._live.now

    def _tell_without_effect(self) -> None:
        """Nobody shall believe in a setting that does nothing."""
        for text in self._config.without_effect():
            if text not in self._told:
                self._told.add(text)
                logger.warning("%s has no effect: nothing here asks for that setting", text)

    def image_changed(self, delta: ImageDelta) -> None:
        if delta.broker_configs:
            # Not in here: whoever hears of new settings shall find that all have heard of the image.
            asyncio.get_running_loop().call_soon(self.refresh)

    def refresh(self) -> None:
        """Put in force what the metadata says of this broker."""
        image = self._metadata.image
        config = BrokerConfig.resolve(
            self._config.given,
            dynamic_default=_usable(image.default_broker_configs, per_broker=False),
            dynamic=_usable(image.broker_configs.get(self._config.node_id, {}), per_broker=True),
        )
        if (config.dynamic_default, config.dynamic) != (self._config.dynamic_default, self._config.dynamic):
            self._live.put(config)
            self._tell_without_effect()

    # -- describe --------------------------------------------------------------------------------------------

    def describe(self, resource_type: int, name: str, keys: Sequence[str] | None) -> list[Described]:
        """The settings of a topic, of this broker, or (name "") those of all brokers; ApiError for any other."""
        names = list(dict.fromkeys(keys)) if keys else None
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            topic = self._metadata.image.topics.get(name)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return TopicConfig.in_force(topic.configs, self._config).describe(self._config, names)
        if resource_type == ResourceType.BROKER:
            if not name:
                return self._config.describe_cluster_default(names)
            if _number(name, "Broker") != self._config.node_id:
                raise _invalid_request(
                    f"Unexpected broker id, expected {self._config.node_id} or empty string, but received {name}"
                )
            return self._config.describe(names)
        if resource_type == ResourceType.BROKER_LOGGER:
            return self._describe_loggers(name, names)
        raise _invalid_request(_MALFORMED)

    def _describe_loggers(self, name: str, names: Sequence[str] | None) -> list[Described]:
        if not name:
            raise _invalid_request("Broker id must not be empty")
        if _number(name, "Broker") != self._config.node_id:
            raise _invalid_request(
                f"Unexpected broker id, expected {self._config.node_id} but received {name}"
            )
        return loggers.describe(names)

    # -- alter -----------------------------------------------------------------------------------------------

    async def alter(
        self, wanted: Sequence[WantedChange], *, replace: bool, validate_only: bool
    ) -> list[ApiError | None]:
        """What became of each, in order. `replace` forgets whatever is not set anew, as AlterConfigs does."""
        named = Counter(change.resource for change in wanted)
        results: list[ApiError | None] = []
        for number, change in enumerate(wanted):
            await give_way(number, _ALTERED_AT_ONCE)
            try:
                if named[change.resource] > 1:
                    raise _invalid_request("Each resource must appear at most once.")
                await self._alter(change, replace=replace, validate_only=validate_only)
                results.append(None)
            except PenstockError as error:
                results.append(as_api_error(error))
        return results

    async def _alter(self, wanted: WantedChange, *, replace: bool, validate_only: bool) -> None:
        names = [change.name for change in wanted.changes]
        if len(set(names)) < len(names):
            raise _invalid_request("Error due to duplicate config keys")
        if wanted.resource_type == ResourceType.TOPIC:
            await self._alter_topic(wanted, replace=replace, validate_only=validate_only)
        elif wanted.resource_type == ResourceType.BROKER:
            await self._alter_broker(wanted, replace=replace, validate_only=validate_only)
        elif wanted.resource_type == ResourceType.BROKER_LOGGER and not replace:
            self._alter_loggers(wanted, validate_only=validate_only)
        else:
            raise _invalid_request(f"Unknown resource type {wanted.resource_type}")

    async def _alter_topic(self, wanted: WantedChange, *, replace: bool, validate_only: bool) -> None:
        name = wanted.resource_name
        if not name:
            raise _invalid_request("Default topic resources are not allowed.")
        check_topic_name(name)

        elsewhere: Mapping[int, int] = {}

        def planned(current: Mapping[str, str]) -> tuple[dict[str, str], TopicConfig]:
            after = dict(altered({} if replace else current, wanted.changes, TOPIC_SETTINGS, "topic"))
            return after, TopicConfig.resolve(after, self._config)

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            after, resolved = planned(current)
            topic = self._metadata.image.topics[name]
            check_retirement(topic, current, after, resolved, replaced=replace)
            check_progress(topic, _progress(current), resolved.archive_progress, self._table, elsewhere)
            return after

        for _ in range(_ROUNDS_MAX):
            topic = self._metadata.image.topics.get(name)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            progress = planned(topic.configs)[1].archive_progress
            node, ask = self._config.node_id, self._ask_leader
            elsewhere = await ends_elsewhere(topic, _progress(topic.configs), progress, node, ask)
            if validate_only:
                change(topic.configs)
                return
            try:
                await self._metadata.alter_topic_configs(name, change)
            except ConflictError:
                continue
            await self._hosting.reconcile()
            await self._until_retired(name)
            return
        raise _too_busy()

    async def _until_retired(self, name: str) -> None:
        """Whoever retires partitions finds it done, unless their leaders take too long: then it will be."""

        def is_done() -> bool:
            topic = self._metadata.image.topics.get(name)
            return topic is None or not to_freeze(topic)

        if not is_done():
            await self._metadata.until(is_done, _RETIRED_SECONDS)

    async def _alter_broker(self, wanted: WantedChange, *, replace: bool, validate_only: bool) -> None:
        broker = self._own_id(wanted.resource_name)

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            after = altered({} if replace else current, wanted.changes, BROKER_SETTINGS, "broker")
            self._check_broker(_known(after), per_broker=broker is not None)
            return after

        for _ in range(_ROUNDS_MAX):
            if validate_only:
                change(_stored(self._metadata.image, broker))
                return
            try:
                await self._metadata.alter_broker_configs(broker, change)
            except ConflictError:
                continue
            self.refresh()
            return
        raise _too_busy()

    def _alter_loggers(self, wanted: WantedChange, *, validate_only: bool) -> None:
        number = _number(wanted.resource_name, "Node")
        if number != self._config.node_id:
            raise _invalid_request(
                f"Unexpected node id. Expected {self._config.node_id}, but received {number}"
            )
        loggers.alter(wanted.changes, validate_only=validate_only)

    def _own_id(self, name: str) -> int | None:
        """None for all brokers. What concerns one broker alone is for that one to check and to write."""
        if not name:
            return None
        number = _number(name, "Node")
        if number != self._config.node_id:
            raise _invalid_request(
                f"Unexpected broker id, expected {self._config.node_id}, but received {number}"
            )
        return number

    def _check_broker(self, layer: Mapping[str, str], *, per_broker: bool) -> None:
        changed = (
            self._config.with_changes(dynamic=layer)
            if per_broker
            else self._config.with_changes(dynamic_default=layer)
        )
        # What topics inherit must not contradict what they say themselves: they would not open after a restart.
        try:
            topics = self._metadata.image.all_topics()
            for overrides in dict.fromkeys(tuple(t.configs.items()) for t in topics):
                TopicConfig.resolve(dict(overrides), changed)
        except ConfigError as error:
            raise _invalid_request(str(error)) from error


def _progress(configs: Mapping[str, str]) -> ArchiveProgress | None:
    return ArchiveProgress.parse(configs.get(PROGRESS, ""))


def _known(layer: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in layer.items() if name in BROKER_SETTINGS}


def _usable(layer: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Without what this version does not know or allow: a stored setting must never keep a broker from starting."""
    usable = {}
    for name, text in _known(layer).items():
        try:
            check_dynamic({name: text}, per_broker=per_broker)
            usable[name] = text
        except ConfigError as error:
            logger.warning("the stored setting %s=%s is not in force: %s", name, text, error)
    return usable


def _stored(image: ClusterImage, broker: int | None) -> Mapping[str, str]:
    return image.default_broker_configs if broker is None else image.broker_configs.get(broker, {})


def _number(name: str, kind: str) -> int:
    if not _INTEGER.fullmatch(name) or not -INT_MAX - 1 <= int(name) <= INT_MAX:
        raise _invalid_request(f"{kind} id must be an integer, but it is: {name}")
    return int(name)


def _invalid_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _too_busy() -> ApiError:
    return ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR, "too many others alter the same settings at the same time"
    )
