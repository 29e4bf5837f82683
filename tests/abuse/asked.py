"""For every API that clients are served: the largest requests that are taken, and the smallest that ask for everything.

Requests are filled from their classes: lists with entries, names with what there is in a broker (`Stock`) and then with
what is unknown. `_SENSE` says what else they need so that work is done for them; `_DRY` of those that change
something, what to ask for so that nothing is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tests.abuse.crowds import entry_of, fields_of, request_of
from tests.integration.raw import make_batch

from penstock.core.limits import (
    LARGE_REQUEST_BYTES,
    PLAIN_REQUEST_BYTES_MAX,
    PORTIONED_REQUEST_BYTES,
    REQUEST_ENTRIES_MAX,
    REQUEST_ENTRIES_WHOLE_MAX,
)
from penstock.frontends.kafka.registry import REGISTRY, Api, advertised
from penstock.frontends.kafka.served import SERVED
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection
from penstock.wire.kafka.primitives import EncodeError, Struct

PARTITIONS = 10  # of each topic
_INNER = 10  # entries of a list within a list
_HEAD_BYTES_MAX = 200
_LONG = "x" * 20_000
_GROUP_FIELDS = {"group_id", "groups", "groups_names", "coordinator_keys", "key", "transactional_id"}
_TOPIC_FIELDS = {
    "name",
    "topic",
    "topic_name",
    "topic_names",
    "resource_name",
    "subscribed_topic_names",
}
_PARTITION_FIELDS = {"partition", "partition_index", "index", "partition_indexes", "partitions"}


@dataclass(frozen=True)
class Stock:
    """What there is in a broker: names of topics and groups to ask for, and of those that may be changed."""

    topics: list[str]
    groups: list[str]
    spare_topics: list[str]
    members: dict[str, str]  # the only one of each group
    data_dir: str


Sense = Mapping[
    str, Any
]  # values by the names of fields; what can be called is given the number of the entry

_CONFIGS = (
    ("retention.ms", "1000000000"),
    ("retention.bytes", "1000000000"),
    ("segment.bytes", "100000000"),
    ("segment.ms", "1000000000"),
    ("max.message.bytes", "1000000"),
    ("cleanup.policy", "delete"),
    ("min.insync.replicas", "1"),
    ("message.timestamp.type", "CreateTime"),
    ("compression.type", "producer"),
    ("file.delete.delay.ms", "1000"),
)


def _sense(key: int, stock: Stock) -> Sense:
    spare = _names(stock.spare_topics)
    configs = {
        "resource_type": 2,
        "resource_name": spare,
        "name": lambda number: _CONFIGS[number % _INNER][0],
        "value": lambda number: _CONFIGS[number % _INNER][1],
    }
    group = next(iter(stock.members))
    return {
        ApiKey.PRODUCE: {"acks": -1, "timeout_ms": 30_000, "records": bytes(make_batch([b""]))},
        ApiKey.FETCH: {
            "replica_id": -1,
            "session_epoch": -1,
            "max_bytes": 1 << 26,
            "partition_max_bytes": 1 << 20,
            "forgotten_topics_data": [],
        },
        ApiKey.LIST_OFFSETS: {"replica_id": -1, "timestamp": lambda number: number % 4 - 2},
        ApiKey.METADATA: {"allow_auto_topic_creation": False},
        ApiKey.OFFSET_COMMIT: {
            "group_id": "committing",
            "member_id": "",
            "generation_id_or_member_epoch": -1,
        },
        ApiKey.JOIN_GROUP: {
            "group_id": "joining",
            "member_id": "",
            "session_timeout_ms": 6000,
            "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer",
            "name": lambda number: f"protocol-{number}",
        },
        ApiKey.SYNC_GROUP: {"group_id": group, "member_id": stock.members[group], "generation_id": 1},
        ApiKey.CREATE_TOPICS: {
            "name": lambda number: f"made-{number}" if number < _INNER else f"not legal {number}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
            "timeout_ms": 30_000,
        },
        ApiKey.DELETE_TOPICS: {"topic_names": spare, "name": spare, "topics": [], "timeout_ms": 30_000},
        ApiKey.DELETE_RECORDS: {"timeout_ms": 30_000},
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout_ms": 1000},
        ApiKey.DESCRIBE_CONFIGS: {
            "resource_type": 2,
            "configuration_keys": None,
            "include_synonyms": True,
            "include_documentation": True,
        },
        ApiKey.ALTER_CONFIGS: configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: {"path": stock.data_dir},
        ApiKey.CREATE_PARTITIONS: {
            "name": spare,
            "count": PARTITIONS + 1,
            "assignments": None,
            "timeout_ms": 30_000,
        },
        ApiKey.DELETE_GROUPS: {"groups_names": lambda number: f"committing-{number}"},
        ApiKey.ELECT_LEADERS: {"timeout_ms": 30_000},
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"replicas": [1], "timeout_ms": 30_000},
        ApiKey.OFFSET_DELETE: {"group_id": "committing"},
        ApiKey.UNREGISTER_BROKER: {"broker_id": 999},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 1 << 30},
    }.get(ApiKey(key), {})


_DRY: Mapping[int, Sense] = {
    ApiKey.CREATE_TOPICS: {"name": lambda number: f"dry-{number}", "validate_only": True},
    ApiKey.CREATE_PARTITIONS: {"count": PARTITIONS + 2, "validate_only": True},
    ApiKey.ALTER_CONFIGS: {"validate_only": True},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"validate_only": True},
}
# The highest version in which the request says what is meant, where that is not the highest of all.
_VERSIONS = {
    ApiKey.PRODUCE: 12,  # topics have names
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.JOIN_GROUP: 3,  # a member is let in at once
    ApiKey.DELETE_TOPICS: 5,  # topics are a list of names
}


def for_clients() -> list[int]:
    return [key for key, _, _ in advertised(transactions=False)]


def for_brokers() -> list[int]:
    return [key for key, (_, _, _, internal) in SERVED.items() if internal]


def frames(key: int, stock: Stock) -> Iterator[tuple[str, bytes]]:
    """What to send, by what it is called."""
    api, sense = REGISTRY[key], _sense(key, stock)
    whole_max = PORTIONED_REQUEST_BYTES if api.portions else LARGE_REQUEST_BYTES
    in_portions = api.portions or api.gives_way or key == ApiKey.FETCH
    entries_max = (REQUEST_ENTRIES_MAX if in_portions else REQUEST_ENTRIES_WHOLE_MAX) - _INNER
    yield "small", _frame(api, stock, sense, entries_max, whole_max - _HEAD_BYTES_MAX)
    if _has_lists(key):
        large_max = int(PLAIN_REQUEST_BYTES_MAX * 0.9)
        yield "large", _frame(api, stock, sense, entries_max, large_max)
        if key in _DRY:
            yield "dry", _frame(api, stock, {**sense, **_DRY[key]}, entries_max, large_max)
        yield "all", _frame(api, stock, sense, 0, large_max)


def foreign_frame(key: int) -> bytes:
    """A large request for a broker, by who is none."""
    body = bytes(int(PLAIN_REQUEST_BYTES_MAX * 0.9))
    return ClientConnection("hostile").send_body(key, SERVED[key][1], body)[1]


def _frame(api: Api, stock: Stock, sense: Sense, entries: int, bytes_max: int) -> bytes:
    version = _VERSIONS.get(ApiKey(api.key), api.max_version)
    filler = _Filler(stock, sense, is_long=not _has_lists(api.key))
    body = _encoded(api, filler.request(request_of(api.key), entries), version)
    while len(body) > bytes_max:
        entries = int(entries * min(0.98, bytes_max / len(body)))
        assert entries, f"API {api.key} has a request without entries of {len(body)} bytes"
        body = _encoded(api, filler.request(request_of(api.key), entries), version)
    return ClientConnection("hostile").send_body(api.key, version, body)[1]


def _encoded(api: Api, request: Struct, version: int) -> bytes:
    try:
        return api.codec.encode_request(request, version)
    except EncodeError as error:
        raise AssertionError(f"API {api.key}, version {version}: {error}") from error


def _has_lists(key: int) -> bool:
    return any(entry_of(kind) is not None for kind in fields_of(request_of(key)).values())


def _names(known: list[str]) -> Callable[[int], str]:
    return lambda number: known[number] if number < len(known) else f"unknown-{number}"


class _Filler:
    def __init__(self, stock: Stock, sense: Sense, *, is_long: bool) -> None:
        self._sense = sense
        self._is_long = is_long
        self._topic = _names(stock.topics)
        self._group = _names(stock.groups)

    def request(self, cls: type, entries: int) -> Struct:
        """With so many entries in all its lists; without any, they are null or empty: that may be everything."""
        fields: dict[str, Any] = {}
        lists = [name for name, kind in fields_of(cls).items() if self._is_filled(name, kind)]
        for name, kind in fields_of(cls).items():
            if name not in lists:
                self._set(fields, name, kind, 0)
            elif not entries:
                fields[name] = None if type(None) in get_args(kind) else []
            else:
                fields[name] = self._entries(name, entry_of(kind), entries // len(lists))
        made: Struct = cls(**fields)
        return made

    def _is_filled(self, name: str, kind: Any) -> bool:
        return entry_of(kind) is not None and (name not in self._sense or callable(self._sense[name]))

    def _entries(self, name: str, kind: type, number_max: int) -> list[Any]:
        made = [self._entry(name, kind, 0)]
        number_max //= _weight(made[0])
        return made + [self._entry(name, kind, number) for number in range(1, number_max)]

    def _entry(self, name: str, kind: type, number: int) -> Any:
        if not issubclass(kind, Struct):
            value = self._value(name, kind, number)
            return number % 100 if value is None else value
        fields: dict[str, Any] = {}
        for field, of in fields_of(kind).items():
            self._set(fields, field, of, number)
        return kind(**fields)

    def _set(self, fields: dict[str, Any], name: str, kind: Any, number: int) -> None:
        """What neither it nor its name makes sense of is left as it is by default."""
        entry = entry_of(kind)
        if name in self._sense or entry is None:
            value = self._value(name, kind, number)
            if value is not None or name in self._sense:
                fields[name] = value
        else:
            first = number * _INNER
            fields[name] = [self._entry(name, entry, first + inner) for inner in range(_INNER)]

    def _value(self, name: str, kind: Any, number: int) -> Any:
        if name in self._sense:
            value = self._sense[name]
            return value(number) if callable(value) else value
        kinds = get_args(kind) or (kind,)
        if str in kinds and self._is_long:
            return _LONG
        if str in kinds and name in _TOPIC_FIELDS | _GROUP_FIELDS:
            return self._topic(number) if name in _TOPIC_FIELDS else self._group(number)
        if name in _PARTITION_FIELDS:
            return number % PARTITIONS
        if str in kinds and type(None) not in kinds:
            return f"x{number}"
        if bool in kinds:
            return True if name.startswith("include_") else None
        return None


def _weight(entry: Any) -> int:
    if not isinstance(entry, Struct):
        return 1
    lists = [getattr(entry, name) for name in entry.__slots__]
    return 1 + sum(_weight(inner) for each in lists if isinstance(each, list) for inner in each)
