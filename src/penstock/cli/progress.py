"""How far something is and how long it will take: a bar for people, lines for a log, nothing for machines."""

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# What happened longer ago says little about how fast it goes now.
_WINDOW_SECONDS = 30.0
_LINE_SECONDS = 5.0
_BAR_CHARACTERS = 20


class Pace:
    """How fast it went of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def note(self, now: float, done: float) -> None:
        seen = self._seen
        seen.append((now, done))
        while len(seen) > 2 and now - seen[0][0] > _WINDOW_SECONDS:
            seen.popleft()

    def left_seconds(self, left: float) -> float | None:
        """None while nothing moves, so that nobody can tell."""
        if left <= 0:
            return 0.0
        if len(self._seen) < 2:
            return None
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        if last <= first or now <= began:
            return None
        return left * (now - began) / (last - first)


def left_text(seconds: float | None) -> str:
    if seconds is None:
        return "time left not known yet"
    if seconds < 60:
        return f"about {max(round(seconds), 1)} s left"
    minutes, hours = round(seconds / 60), seconds / 3600
    return f"about {minutes} min left" if minutes < 60 else f"about {hours:.1f} h left"


def bar_text(done: float, total: float) -> str:
    """A bar of characters, for a table."""
    share = 1.0 if total <= 0 else min(1.0, done / total)
    filled = int(share * _BAR_CHARACTERS)
    return f"{'█' * filled}{'░' * (_BAR_CHARACTERS - filled)} {int(share * 100):>3} %"


class Bar:
    """On stderr, so that what a command has to say stays alone on stdout."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._pace = Pace()
        self._rich: Progress | None = None
        self._task: TaskID | None = None
        self._said_at = time.monotonic()  # what is done soon needs no line

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._rich = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[detail]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._rich.add_task(self._what, total=None, detail="")
            self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def show(self, done: float, total: float, detail: str = "") -> None:
        now = time.monotonic()
        self._pace.note(now, done)
        detail = ", ".join(
            text for text in (detail, left_text(self._pace.left_seconds(total - done))) if text
        )
        if self._rich is not None and self._task is not None:
            self._rich.update(self._task, completed=done, total=max(total, 1), detail=detail)
        elif not self._quiet and now - self._said_at >= _LINE_SECONDS:
            self._said_at = now
            percent = int(100 * done / total) if total else 100
            print(f"{self._what}: {percent} %, {detail}", file=sys.stderr, flush=True)
