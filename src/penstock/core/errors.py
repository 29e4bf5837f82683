"""The root of every error the broker raises on purpose, and its two wire-facing kinds.

An error carries its meaning on the wire (`code`) and whether the connection survives it, so that
the layer that answers the client needs no knowledge of what went wrong below.
"""

from penstock.core.error_codes import ErrorCode


class PenstockError(Exception):
    """Root of all errors raised on purpose; anything else that escapes is a bug."""


class ApiError(PenstockError):
    """A request that is answered with an error code; the connection lives on."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message

    def kept(self) -> "ApiError":
        """To be told later: without the frames it came through, which would refer to it, as it to them, for ever."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class ProtocolError(PenstockError):
    """Bytes that are not a valid request: there is nothing to answer, so the connection is closed."""


class ClientGoneError(ProtocolError):
    """Nobody is there any more to take the answer."""


class StorageError(PenstockError):
    """The disk let us down; `ShortageError` heals by itself, `DiskFailedError` needs a scan."""


class DiskError(StorageError):
    """So says the system: of what is stored this tells nothing, neither that it is damaged nor that it is absent."""


class ShortageError(DiskError):
    """Something has run out: this request fails, and nothing is in doubt."""


class TooManyFilesError(ShortageError):
    """No descriptor is left, here or in the whole system: nothing was opened."""


class DiskFullError(ShortageError):
    """No space left: refuse writes, keep serving reads, go on when space returns."""


class DiskFailedError(DiskError):
    """An I/O error on write or fsync: what the page cache says can no longer be trusted."""


class WorkerDiedError(PenstockError):
    """A process of ours ended without an answer: killed, or out of memory."""
