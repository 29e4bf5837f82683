"""Large requests without records that are whole and not done yet: they wait for their turn, or are worked on.

They are taken out of their receive buffers, for what all connections may receive at once (`server.receiving`) is not to
be used up by requests that take long. So they are counted here: until their work ends, not until their client goes. Who
comes when they are too many is turned away, where it is of the address that has most of them.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import TypeVar

from penstock.core.errors import ProtocolError
from penstock.core.limits import PLAIN_REQUESTS_BYTES_MAX

T = TypeVar("T")


class KeptRequests:
    def __init__(self, limit_bytes: int = PLAIN_REQUESTS_BYTES_MAX) -> None:
        self._limit_bytes = limit_bytes
        self._by_peer: Counter[str] = Counter()
        self.used_bytes = 0

    def admit(self, peer: str, size_bytes: int) -> None:
        """Count one more, or ProtocolError."""
        used, own = self.used_bytes + size_bytes, self._by_peer[peer] + size_bytes
        if used > self._limit_bytes and (own >= max(self._by_peer.values()) or used > 2 * self._limit_bytes):
            raise ProtocolError(f"requests of {self.used_bytes} bytes are being worked on: no more are taken")
        self.used_bytes = used
        self._by_peer[peer] = own

    async def until_done(self, peer: str, size_bytes: int, work: Coroutine[object, object, T]) -> T:
        try:
            return await work
        finally:
            self.used_bytes -= size_bytes
            self._by_peer[peer] -= size_bytes
            if not self._by_peer[peer]:
                del self._by_peer[peer]
