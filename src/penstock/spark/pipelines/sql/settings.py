"""What one streaming query was asked to do: parsed and checked before Spark is started, which takes seconds."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from penstock.core.errors import PenstockError

CONSOLE = "console"
TOPIC_PREFIX = "topic:"
# Under this and the name of a topic, the progress of a stream tells how many of its records were malformed.
MALFORMED_METRIC = "malformed:"
# Often enough for a screen; a batch costs about as much as a hundred empty looks at the broker.
EVERY_MS = 1000

_TOPIC_NAME = r"[A-Za-z0-9._-]{1,249}"
# No type or column definition can begin with `name=`, so this tells `orders=id INT` from `id INT`.
_FOR_TOPIC = re.compile(rf"\s*({_TOPIC_NAME})\s*=(.*)", re.DOTALL)
T = TypeVar("T", bound=StrEnum)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class SqlError(PenstockError):
    """A query that cannot run as asked; the message says what to change."""


class SqlUseError(SqlError):
    """An option that is wrong whatever the broker has."""


class Value(StrEnum):
    JSON = "json"
    TEXT = "text"


class Start(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


class Mode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class Malformed(StrEnum):
    """What happens to a record whose value is not the JSON that the columns need."""

    SKIP = "skip"
    KEEP = "keep"
    FAIL = "fail"


class TargetKind(StrEnum):
    CONSOLE = "console"
    TOPIC = "topic"
    LAKE = "lake"


@dataclass(frozen=True, slots=True)
class Target:
    kind: TargetKind
    name: str  # the topic's name or the lake's URI

    @classmethod
    def parse(cls, text: str) -> "Target":
        text = text.strip()
        if text == CONSOLE:
            return cls(TargetKind.CONSOLE, "")
        if text.startswith(TOPIC_PREFIX):
            name = text.removeprefix(TOPIC_PREFIX)
            if not re.fullmatch(_TOPIC_NAME, name):
                raise SqlUseError(f"{name!r} cannot be a topic: use letters, digits, '.', '_' and '-'")
            return cls(TargetKind.TOPIC, name)
        if _URI.match(text):
            return cls(TargetKind.LAKE, text.rstrip("/"))
        if "/" in text or text in (".", ".."):
            return cls(TargetKind.LAKE, str(Path(text).absolute()))
        raise SqlUseError(
            f"where is {text!r}? Write topic:{text} for a topic, ./{text} for a folder, or console"
        )

    def __str__(self) -> str:
        return f"{TOPIC_PREFIX}{self.name}" if self.kind is TargetKind.TOPIC else self.name or CONSOLE


@dataclass(frozen=True, slots=True)
class PerTopic:
    """A text for every topic, and texts for some: `--schema 'id INT' --schema orders='id BIGINT'`."""

    everywhere: str | None = None
    of: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, option: str, texts: "Iterable[str] | Mapping[str, str] | str | None") -> "PerTopic":
        if texts is None:
            return cls()
        if isinstance(texts, Mapping):
            return cls(None, dict(texts))
        everywhere: str | None = None
        of: dict[str, str] = {}
        for text in [texts] if isinstance(texts, str) else texts:
            match = _FOR_TOPIC.fullmatch(text)
            name, rest = (match[1], match[2]) if match else (None, text)
            if not rest.strip():
                raise SqlUseError(f"{option} {text!r} is empty: leave it away or fill it in")
            if name is None and everywhere is None:
                everywhere = rest.strip()
            elif name is not None and name not in of:
                of[name] = rest.strip()
            else:
                raise SqlUseError(
                    f"{option} is given twice for {name or 'every topic'}: write {option} TOPIC='…' for each topic"
                )
        return cls(everywhere, of)

    def get(self, topic: str) -> str | None:
        return self.of.get(topic, self.everywhere)

    def check_topics(self, option: str, topics: Iterable[str]) -> None:
        """A text for a topic that the query does not read is a mistake."""
        known = list(topics)
        for name in self.of:
            if name not in known:
                raise SqlUseError(
                    f"{option} is for topic {name}, but the query reads {', '.join(known) or 'none'}"
                )

    def to_json(self) -> dict[str, str]:
        return {"*": self.everywhere, **self.of} if self.everywhere is not None else dict(self.of)


@dataclass(frozen=True, slots=True)
class Watermark:
    column: str
    delay: str

    @classmethod
    def parse(cls, text: str) -> "Watermark":
        column, _, delay = text.strip().partition(" ")
        if not delay.strip() or not re.match(r"\s*([0-9]|interval\b)", delay, re.IGNORECASE):
            raise SqlUseError(
                f"--watermark {text!r} is not a column and a delay: write --watermark 'at 10 minutes'"
            )
        return cls(column.strip("`"), delay.strip())


@dataclass(frozen=True, slots=True)
class SqlSettings:
    query: str
    target: Target
    value: PerTopic
    schema: PerTopic
    watermark: PerTopic
    start: Start = Start.EARLIEST
    once: bool = False
    every_ms: int = EVERY_MS
    checkpoint: str | None = None
    mode: Mode | None = None
    malformed: Malformed = Malformed.SKIP
    options: Mapping[str, str] = field(default_factory=dict)  # of the data source

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise SqlUseError('the query is empty: write one such as "SELECT * FROM orders"')
        for text in self._texts(self.value):
            _one_of(Value, "--value", text)
        for text in self._texts(self.watermark):
            Watermark.parse(text)
        if self.target.kind is TargetKind.LAKE and self.mode not in (None, Mode.APPEND):
            raise SqlUseError(
                f"files can only be added to a lake, so --mode {self.mode} cannot go there: use --mode append, "
                "or a topic"
            )

    @staticmethod
    def _texts(given: PerTopic) -> list[str]:
        return [text for text in (given.everywhere, *given.of.values()) if text is not None]

    def value_of(self, topic: str) -> Value:
        """Columns, unless the values are said to be text."""
        given = self.value.get(topic)
        value = Value.JSON if given is None else _one_of(Value, "--value", given)
        if value is Value.TEXT and topic in self.schema.of:
            raise SqlUseError(
                f"topic {topic} has --value text, which has no --schema: leave one of them away"
            )
        return value

    def watermark_of(self, topic: str) -> Watermark | None:
        given = self.watermark.get(topic)
        return None if given is None else Watermark.parse(given)

    def identity(self) -> dict[str, object]:
        """What a checkpoint depends on: with another of these, its state would mean something else."""
        return {
            "query": self.query.strip().rstrip(";").strip(),
            "target": str(self.target),
            "mode": None if self.mode is None else str(self.mode),
            "value": self.value.to_json(),
            "schema": self.schema.to_json(),
            "watermark": self.watermark.to_json(),
            "malformed": str(self.malformed),
        }


def parse_settings(
    query: str,
    *,
    to: str = CONSOLE,
    value: "Iterable[str] | Mapping[str, str] | str | None" = None,
    schema: "Iterable[str] | Mapping[str, str] | str | None" = None,
    watermark: "Iterable[str] | Mapping[str, str] | str | None" = None,
    start: str = Start.EARLIEST,
    once: bool = False,
    every_ms: int = EVERY_MS,
    checkpoint: str | None = None,
    mode: str | None = None,
    malformed: str = Malformed.SKIP,
    options: Mapping[str, str] | None = None,
) -> SqlSettings:
    """Settings from what people write; SqlUseError says what is wrong."""
    return SqlSettings(
        query=query,
        target=Target.parse(to),
        value=PerTopic.parse("--value", value),
        schema=PerTopic.parse("--schema", schema),
        watermark=PerTopic.parse("--watermark", watermark),
        start=_one_of(Start, "--from", start),
        once=once,
        every_ms=every_ms,
        checkpoint=checkpoint,
        mode=None if mode is None else _one_of(Mode, "--mode", mode),
        malformed=_one_of(Malformed, "--malformed", malformed),
        options=dict(options or {}),
    )


def _one_of(kind: type[T], option: str, text: str) -> T:
    try:
        return kind(text.strip().lower())
    except ValueError:
        raise SqlUseError(f"{option} {text!r}: use {', '.join(kind)}") from None
