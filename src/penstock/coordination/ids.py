"""Ids of topics, clusters and processes: sixteen bytes, and how they are written."""

import base64
from functools import lru_cache

_CACHED_MAX = 4096


@lru_cache(maxsize=_CACHED_MAX)
def id_text(sixteen: bytes) -> str:
    """As Kafka writes ids: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(sixteen).rstrip(b"=").decode()


@lru_cache(maxsize=_CACHED_MAX)
def id_bytes(text: str) -> bytes:
    sixteen = base64.urlsafe_b64decode(text + "==")
    if len(sixteen) != 16:
        raise ValueError(f"not an id: {text!r}")
    return sixteen
