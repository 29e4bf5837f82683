"""Tags and labels as they travel: one header `tags`, names and `name=value` separated by commas.

The broker filters on this header without looking at the payload, so its form is part of the protocol: no part
is empty, holds a comma, or begins or ends with a space. Several `tags` headers on one message count together.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from penstock.client.errors import ClientError

HEADER = "tags"


class BadTagError(ClientError):
    """A tag or label that the header cannot carry."""


def encode(tags: Iterable[str] = (), labels: Mapping[str, str] | None = None) -> str:
    """The header's text; empty when there is nothing to carry."""
    if isinstance(tags, str):
        raise BadTagError(f"tags={tags!r} is one string: write tags=[{tags!r}]")
    return _encoded(tuple(tags), tuple(labels.items()) if labels else ())


@lru_cache(maxsize=1024)
def _encoded(tags: tuple[str, ...], labels: tuple[tuple[str, str], ...]) -> str:
    for tag in tags:
        _check(tag, "tag")
        if "=" in tag:
            raise BadTagError(f"tag {tag!r} holds '=': give it as labels={{name: value}}")
    for name, value in labels:
        _check(name, "label")
        if "=" in name:
            raise BadTagError(f"label {name!r} holds '=': only its value may")
        if not isinstance(value, str):
            raise BadTagError(f"label {name!r} is {type(value).__name__}: labels are text, write str(…)")
        if "," in value or value != value.strip():
            raise BadTagError(
                f"label {name}={value!r} holds a comma or ends in spaces: put it into a header or the value"
            )
    return ",".join((*tags, *(f"{name}={value}" for name, value in labels)))


def _check(name: object, kind: str) -> None:
    if not isinstance(name, str):
        raise BadTagError(f"{kind} {name!r} is {type(name).__name__}, not text")
    if not name or "," in name or name != name.strip():
        raise BadTagError(f"{kind} {name!r} is empty, holds a comma or ends in spaces: choose another name")


def decode(values: Iterable[bytes | str | None]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Tags and labels of all `tags` headers of a message. What others wrote is read as far as it can be."""
    tags: list[str] = []
    labels: dict[str, str] = {}
    for value in values:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
        for part in text.split(","):
            part = part.strip()
            name, equals, rest = part.partition("=")
            if equals and name:
                labels[name] = rest
            elif part:
                tags.append(part)
    return tuple(tags), labels
