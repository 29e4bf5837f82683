"""The reviewed list of differences that are meant to be, each with its reason.

An entry names the API, the path and both value classes, with `*` for any run of characters; `versions` and
`label` narrow it further. An entry that nothing matches any more has outlived its reason and is reported.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.clients.oracle.run import Finding

LIST = Path(__file__).with_name("accepted.toml")


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


@dataclass(frozen=True)
class Accepted:
    api: str
    path: str
    kafka: str
    penstock: str
    reason: str
    label: str = "*"
    versions: str = "*"

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(_pattern(text) for text in (self.api, self.path, self.kafka, self.penstock, self.label))

    def covers(self, finding: Finding) -> bool:
        values = (finding.api, finding.path, finding.left_class, finding.right_class, finding.label)
        return self._covers_version(finding.version) and all(
            pattern.fullmatch(value) for pattern, value in zip(self._patterns, values, strict=True)
        )

    def _covers_version(self, version: int) -> bool:
        if self.versions == "*":
            return True
        low, _, high = self.versions.partition("-")
        return int(low) <= version <= int(high or low)


def load(path: Path = LIST) -> list[Accepted]:
    with path.open("rb") as file:
        return [Accepted(**entry) for entry in tomllib.load(file).get("difference", [])]
