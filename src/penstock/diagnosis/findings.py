"""What `penstock doctor` and `penstock why` found, and what to do about it."""

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

    def as_json(self) -> dict[str, str | None]:
        return {
            "check": self.check,
            "level": str(self.level),
            "found": self.found,
            "advice": self.advice or None,
        }


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, found, advice)


def fail(check: str, found: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, found, advice)
