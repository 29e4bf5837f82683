"""What kazoo raises, in the words of the tree: mapped here and nowhere else."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionMovedError,
    ThrottledOpError,
)
from kazoo.exceptions import SessionExpiredError as KazooSessionExpiredError

from penstock.coordination.tree import ConnectionLostError, CoordinationError, SessionExpiredError
from penstock.coordination.zookeeper.address import Address


class AccessDeniedError(CoordinationError):
    """ZooKeeper knows us as somebody who may not do this."""


class Refusal(Enum):
    NO_NODE = "no node"
    EXISTS = "exists"
    VERSION = "version"
    OTHER = "other"


class Refused(NamedTuple):
    """A multi that did not happen, because of the operation at this place in it."""

    at: int
    why: Refusal


_NO_ANSWER = (ConnectionLoss, OperationTimeoutError, SessionMovedError, ThrottledOpError)
_WHY = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.EXISTS,
    BadVersionError: Refusal.VERSION,
}


def mapped(
    error: KazooException, address: Address, session: int, credential: str | None
) -> CoordinationError:
    if isinstance(error, KazooSessionExpiredError):
        return SessionExpiredError(f"session {session:016x} is over")
    if isinstance(error, _NO_ANSWER):
        return ConnectionLostError(f"ZooKeeper at {address.hosts} did not answer")
    if isinstance(error, NoAuthError | AuthFailedError | InvalidACLError):
        return _denied(address, credential)
    return CoordinationError(f"ZooKeeper at {address.hosts}: {type(error).__name__} {error}")


def refused(outcomes: Sequence[Any], address: Address, credential: str | None) -> Refused | None:
    """Which operation of a multi was in the way; None: it happened."""
    for at, outcome in enumerate(outcomes):
        if isinstance(outcome, NoAuthError):
            raise _denied(address, credential)
        if isinstance(outcome, Exception) and not isinstance(outcome, RolledBackError | RuntimeInconsistency):
            return Refused(at, _WHY.get(type(outcome), Refusal.OTHER))
    return None


def _denied(address: Address, credential: str | None) -> AccessDeniedError:
    if credential is None:
        advice = "give user:password with penstock.zookeeper.digest"
    else:
        user = credential.partition(":")[0]
        advice = f"the password of {user!r} (penstock.zookeeper.digest) is not the one it was set up with"
    return AccessDeniedError(f"ZooKeeper at {address} does not let us in: {advice}")
