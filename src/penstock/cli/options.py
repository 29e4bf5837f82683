"""Option values taken apart."""

import re
from datetime import datetime

from penstock.cli.errors import WrongUseError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_COUNT = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_UNITS_BYTES = {"b": 1, "kb": 1000, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_pairs(option: str, pairs: list[str] | None) -> dict[str, str]:
    """`name=value` options as a mapping; the last one wins."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise WrongUseError(f"{option} {pair!r} is not a setting: write {option} name=value")
        found[name.strip()] = value
    return found


_AGO = re.compile(r"([0-9]+)(ms|s|m|h|d)")


def is_ago(text: str | None) -> bool:
    """Whether it is another time whenever it is asked for."""
    return text is not None and _AGO.fullmatch(text.strip()) is not None


def parse_time(text: str, now_ms: int, option: str = "--since") -> int:
    """Epoch milliseconds: as such, as an ISO time (local unless it says), or as `5m`, meaning five minutes ago."""
    text = text.strip()
    relative = _AGO.fullmatch(text)
    if relative:
        return max(0, now_ms - int(relative[1]) * _UNITS_MS[relative[2]])
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))  # below 0 are special places
    except ValueError as error:
        raise WrongUseError(
            f"{option} {text!r} is not a time: write 5m, 2h or 1d (ago), 2025-01-31T12:00:00, or epoch milliseconds"
        ) from error


def parse_duration(option: str, text: str) -> float:
    """Seconds of `500ms`, `30s`, `1m`, `2h` or `1d`; a plain number is seconds."""
    found = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)?", text.strip())
    if not found or int(found[1]) == 0:
        raise WrongUseError(f"{option} {text!r} is not a time: write 30s, 1m or 2h")
    return int(found[1]) * _UNITS_MS[found[2] or "s"] / 1000


def parse_size(option: str, text: str) -> int:
    """Bytes of `64MB` or `1GB`; a plain number is bytes."""
    found = re.fullmatch(r"([0-9]+)\s*(B|kB|MB|GB|TB)?", text.strip(), re.IGNORECASE)
    if not found or int(found[1]) == 0:
        raise WrongUseError(f"{option} {text!r} is not a size: write 64MB or 1GB")
    return int(found[1]) * _UNITS_BYTES[(found[2] or "B").lower()]


def parse_count(option: str, text: str, unit: str = "") -> float:
    """A number such as `500`, `20k` or `1.5M`; with a unit, `10Gbit`."""
    found = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)\s*([kMG]?){unit}", text.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise WrongUseError(f"{option} {text!r} is not a number: write 500{unit}, 20k{unit} or 1.5M{unit}")
    return float(found[1]) * _UNITS_COUNT[found[2].lower()]
