"""Results on disk: one JSON file per measurement, so that parts can be run at different times.

Shrunken runs are kept apart: they must not replace, nor be mistaken for, the real ones.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.load import Metrics

RESULTS_DIR = Path(__file__).with_name("results")
SHRUNKEN_DIR = RESULTS_DIR / "shrunken"


@dataclass(frozen=True)
class Result:
    """All rounds of one measurement."""

    measurement: str
    date: str
    scale: float
    versions: dict[str, str]
    machine: dict[str, str]
    rounds: dict[str, list[Metrics]]

    def values(self, contender: str, metric: str) -> list[float]:
        return [metrics[metric] for metrics in self.rounds.get(contender, []) if metric in metrics]

    def median(self, contender: str, metric: str) -> float | None:
        values = self.values(contender, metric)
        return statistics.median(values) if values else None

    def ratio(self, metric: str, ours: str, theirs: str) -> float | None:
        mine, other = self.median(ours, metric), self.median(theirs, metric)
        return mine / other if mine is not None and other else None


def save(result: Result) -> None:
    directory = RESULTS_DIR if result.scale >= 1 else SHRUNKEN_DIR
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.measurement}.json"
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def load_all(*, shrunken: bool = False) -> dict[str, Result]:
    directory = SHRUNKEN_DIR if shrunken else RESULTS_DIR
    found = (Result(**json.loads(path.read_text())) for path in sorted(directory.glob("*.json")))
    return {result.measurement: result for result in found}
