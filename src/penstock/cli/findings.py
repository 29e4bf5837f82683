"""What a check of `penstock doctor` found, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, found, advice)
