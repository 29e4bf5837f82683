"""What all nodes of the tree have in common: a JSON object that says its version, and errors that name the node."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.coordination.tree import CoordinationError
from penstock.core.formats import NewerFormatError, check_version

_VERSION = 1
VERSION_MEMBER = "version"
# json.dumps would build an encoder per call.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class MetadataError(CoordinationError):
    """A node that does not hold what it should."""


def dump(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode({VERSION_MEMBER: _VERSION, **fields}).encode()


def fields_of(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(data)
    check_version("it", int(fields.get(VERSION_MEMBER, _VERSION)), _VERSION)
    return fields


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Whatever is wrong with a node's content names the node."""
    try:
        yield
    except NewerFormatError as error:
        raise MetadataError(f"{path} is not understood: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MetadataError(f"{path} does not hold what it should: {error!r}") from error
