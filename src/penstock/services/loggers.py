"""The broker's loggers as a resource: Kafka's tools show and change their levels while it runs. Nothing is kept."""

import logging
from collections.abc import Sequence

from penstock.config.alter import Alteration, Operation
from penstock.config.describe import Described
from penstock.config.settings import ConfigError, SettingType, Source
from penstock.core.error_codes import ErrorCode

ROOT = "root"
_PACKAGE = "penstock"
# Kafka's names; TRACE is below what Python names.
_LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def describe(names: Sequence[str] | None) -> list[Described]:
    return [
        Described(
            name=name,
            value=_level_name(logger.getEffectiveLevel()),
            source=Source.DYNAMIC_BROKER_LOGGER,
            type=SettingType.UNKNOWN,
            read_only=False,
            sensitive=False,
            synonyms=(),
            doc="",
        )
        for name, logger in _loggers().items()
        if names is None or name in names
    ]


def alter(changes: Sequence[Alteration], *, validate_only: bool) -> None:
    """All of them or, with a ConfigError, none."""
    known = _loggers()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for change in changes:
        deleted = change.operation is Operation.DELETE
        known[change.name].setLevel(logging.NOTSET if deleted else _LEVELS[change.value or ""])


def _check(change: Alteration, known: dict[str, logging.Logger]) -> None:
    if change.operation in {Operation.APPEND, Operation.SUBTRACT}:
        raise ConfigError(
            f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource",
            ErrorCode.INVALID_REQUEST,
        )
    if change.name not in known:
        raise ConfigError(f"Logger {change.name} does not exist!")
    if change.operation is Operation.DELETE:
        if change.name == ROOT:
            raise ConfigError(
                "Removing the log level of the root logger is not allowed", ErrorCode.INVALID_REQUEST
            )
    elif change.value is None:
        raise ConfigError(f"Null value not supported for : {change.name}", ErrorCode.INVALID_REQUEST)
    elif change.value not in _LEVELS:
        raise ConfigError(
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )


def _loggers() -> dict[str, logging.Logger]:
    own = {
        name: logger
        for name, logger in sorted(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.startswith(_PACKAGE)
    }
    return {ROOT: logging.root, **own}


def _level_name(level: int) -> str:
    """The severest name that is not above the level."""
    return next((name for name, value in reversed(_LEVELS.items()) if value <= level), "TRACE")
