"""What a setting is: one frozen declaration from which parsing, validation, DescribeConfigs and the docs come.

The numbers of `SettingType` and `Source` are those of the Kafka protocol, so that an answer can carry them as
they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, IntEnum

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError

Value = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigError(ApiError):
    """A setting that does not exist, cannot hold this value or cannot be changed; the message says what can."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        super().__init__(code, message)


class SettingType(IntEnum):
    UNKNOWN = 0  # of what has values but no declaration: loggers
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """Where an effective value came from."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


class Update(Enum):
    """How a broker setting may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Validator:
    """A test on a parsed value, the words for what passes it (docs), and Kafka's words for what does not (clients)."""

    allowed: str
    accepts: Callable[[Value], bool]
    # The setting's name and the value to the whole message.
    refusal: Callable[[str, Value], str]


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that gives a topic setting its default, times `factor` to reach the topic's unit."""

    name: str
    factor: int = 1

    def to_topic(self, value: Value) -> Value:
        if self.factor == 1 or not isinstance(value, int):
            return value
        # A negative time means "for ever" in every unit.
        return value * self.factor if value >= 0 else -1


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: SettingType
    default: Value
    doc: str
    validator: Validator | None = None
    unit: str = ""
    update: Update = Update.READ_ONLY
    # For a topic setting: the broker settings its default comes from, the first that is set wins.
    # For a broker setting: the others that say the same thing in another unit, itself included.
    synonyms: tuple[Synonym, ...] = ()
    # Accepted but never shown: Kafka keeps a few such for tests.
    internal: bool = False
    # Known because Kafka's tools show and set it; nothing here asks for it.
    without_effect: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed value, or `ConfigError` with what would have been allowed."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError as error:
            raise ConfigError(_invalid(self.name, text.strip(), _NOT_OF_TYPE[self.type])) from error
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        if self.validator is not None and not self.validator.accepts(value):
            raise ConfigError(self.validator.refusal(self.name, value))

    def shown(self, value: Value) -> str | None:
        """As DescribeConfigs shows it: secrets and unset values as null."""
        return None if value is None or self.sensitive else render(value)


def render(value: Value) -> str:
    """The text that parses back to the value, spelt as Kafka spells it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).upper().replace("E+", "E")
    return "" if value is None else str(value)


def lookup(table: Mapping[str, Setting], kind: str, name: str) -> Setting:
    setting = table.get(name)
    if setting is not None:
        return setting
    # Broker settings are given by people, at the start; topic settings by clients, who know Kafka's message.
    close = get_close_matches(name, table, n=1) if kind == "broker" else []
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ConfigError(f"Unknown {kind} config name: {name}{hint}")


def by_name(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in sorted(settings, key=lambda setting: setting.name)}


# -- Parsing ---------------------------------------------------------------------------------------------------


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in {"true", "false"}:
        raise ValueError(text)
    return lower == "true"


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        # int() alone would also take "1_000" and other scripts' digits, which no Kafka broker understands.
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        value = int(text)
        if not -limit <= value < limit:
            raise ValueError(text)
        return value

    return parse


def _double(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


_PARSERS: dict[SettingType, Callable[[str], Value]] = {
    SettingType.BOOLEAN: _boolean,
    SettingType.STRING: str,
    SettingType.INT: _integer(32),
    SettingType.SHORT: _integer(16),
    SettingType.LONG: _integer(64),
    SettingType.DOUBLE: _double,
    SettingType.LIST: _list,
    SettingType.CLASS: str,
    SettingType.PASSWORD: str,
}

_NOT_OF_TYPE = {
    SettingType.BOOLEAN: "Expected value to be either true or false",
    **{
        numeric: f"Not a number of type {numeric.name}"
        for numeric in (SettingType.INT, SettingType.SHORT, SettingType.LONG, SettingType.DOUBLE)
    },
}


def _invalid(name: str, shown: str, reason: str) -> str:
    return f"Invalid value {shown} for configuration {name}: {reason}"


# -- Validators ------------------------------------------------------------------------------------------------


def at_least(low: float) -> Validator:
    return Validator(
        f"at least {low}",
        lambda value: value is None or _number(value) >= low,
        lambda name, value: _invalid(name, render(value), f"Value must be at least {low}"),
    )


def between(low: float, high: float) -> Validator:
    def refusal(name: str, value: Value) -> str:
        limit = f"at least {low}" if _number(value) < low else f"no more than {high}"
        return _invalid(name, render(value), f"Value must be {limit}")

    return Validator(
        f"between {low} and {high}", lambda value: value is None or low <= _number(value) <= high, refusal
    )


def one_of(*names: str) -> Validator:
    listed = ", ".join(names)
    return Validator(
        "one of " + listed,
        lambda value: value in names,
        lambda name, value: _invalid(name, render(value), f"String must be one of: {listed}"),
    )


def one_of_or_unset(*names: str) -> Validator:
    strict = one_of(*names)
    return Validator(strict.allowed + ", or unset", lambda value: not value or value in names, strict.refusal)


def list_of(*names: str) -> Validator:
    """Any of the names, each at most once; Kafka allows the empty list for `cleanup.policy`."""
    listed = ", ".join(names)

    def accepts(value: Value) -> bool:
        return isinstance(value, tuple) and set(value) <= set(names) and len(set(value)) == len(value)

    def refusal(name: str, value: Value) -> str:
        for part in value if isinstance(value, tuple) else ():
            if part not in names:
                return _invalid(name, part, f"String must be one of: {listed}")
        return f"Configuration '{name}' values must not be duplicated."

    return Validator("a list of " + listed, accepts, refusal)


def level(low: int, high: int, default: int) -> Validator:
    """A compression level, where "the library's choice" is a number outside the range."""
    return Validator(
        f"between {low} and {high}, or {default} for the library's default",
        lambda value: value == default or low <= _number(value) <= high,
        lambda name, value: _invalid(
            name, render(value), f"Value must be between {low} and {high} or equal to {default}"
        ),
    )


def throttled_replicas() -> Validator:
    """`*` for all, or partition:broker pairs."""

    def accepts(value: Value) -> bool:
        if not isinstance(value, tuple) or value in {(), ("*",)}:
            return isinstance(value, tuple)
        return all(_is_pair(part) for part in value)

    def refusal(name: str, value: Value) -> str:
        wanted = (
            "must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
        shown = ", ".join(value) if isinstance(value, tuple) else ""
        return _invalid(name, f"[{shown}]", f"{name} {wanted}")

    return Validator("* or a list like 0:101,1:102 (partition:broker)", accepts, refusal)


def not_empty_list() -> Validator:
    return Validator(
        "a list of at least one name",
        lambda value: isinstance(value, tuple) and any(value),
        lambda name, value: f"Configuration '{name}' must not be empty.",
    )


def _is_pair(text: str) -> bool:
    partition, colon, broker = text.partition(":")
    return bool(colon) and partition.isdecimal() and broker.isdecimal()


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a range was declared for a setting whose values are not numbers: {value!r}")
    return value
