"""How every codec of this package turns what goes wrong into the two declared errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.wire.kafka.primitives import MALFORMED, UNENCODABLE, DecodeError, EncodeError, refuse_version

# All of these APIs have had one version so far.
FIRST_VERSION = 0


@contextmanager
def decoding(name: str, version: int) -> Iterator[None]:
    if version != FIRST_VERSION:
        refuse_version(name, version, FIRST_VERSION, FIRST_VERSION)
    try:
        yield
    except MALFORMED as error:
        raise DecodeError(f"{name}: {error}") from error


@contextmanager
def encoding(name: str, version: int) -> Iterator[None]:
    if version != FIRST_VERSION:
        refuse_version(name, version, FIRST_VERSION, FIRST_VERSION)
    try:
        yield
    except UNENCODABLE as error:
        raise EncodeError(f"{name}: {error}") from error
