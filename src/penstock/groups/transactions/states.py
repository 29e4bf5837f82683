"""The states of a transactional id, and the moves between them.

    EMPTY            a producer has its id and epoch, and no transaction
    ONGOING          partitions are in the transaction
    PREPARE_COMMIT   to be committed: decided for good, markers are being written
    PREPARE_ABORT    to be aborted: the same
    COMPLETE_COMMIT  every partition has its marker
    COMPLETE_ABORT   the same
    DEAD             forgotten; whoever still holds the object must look again

Kafka has one more, PrepareEpochFence, between Ongoing and PrepareAbort, which it never stores: here a fence is one
step.

A move that is not in the table is a bug, and raises.
"""

from enum import Enum


class TransactionState(Enum):
    """Values are Kafka's words, as ListTransactions and DescribeTransactions give them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD = TransactionState

_BEGUN = "a partition or a group's offsets are added"
_RENEWED = "InitProducerId raises the epoch"
_EMPTY_ABORT = "EndTxn of version 5 aborts, with nothing in it"
_IDLE = "idle for transactional.id.expiration.ms"

# from: {to: what brings it there}
TRANSITIONS: dict[TransactionState, dict[TransactionState, str]] = {
    EMPTY: {EMPTY: _RENEWED, ONGOING: _BEGUN, PREPARE_ABORT: _EMPTY_ABORT, DEAD: _IDLE},
    ONGOING: {
        ONGOING: "more is added",
        PREPARE_COMMIT: "EndTxn commits",
        PREPARE_ABORT: "EndTxn aborts, the timeout passed, or InitProducerId fences",
    },
    PREPARE_COMMIT: {COMPLETE_COMMIT: "every partition has its marker"},
    PREPARE_ABORT: {COMPLETE_ABORT: "every partition has its marker"},
    COMPLETE_COMMIT: {EMPTY: _RENEWED, ONGOING: _BEGUN, PREPARE_ABORT: _EMPTY_ABORT, DEAD: _IDLE},
    COMPLETE_ABORT: {EMPTY: _RENEWED, ONGOING: _BEGUN, PREPARE_ABORT: _EMPTY_ABORT, DEAD: _IDLE},
    DEAD: {},
}

# Where an end that was prepared leads, and nowhere else.
COMPLETION = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
PREPARED = frozenset(COMPLETION)
COMPLETED = frozenset(COMPLETION.values())
IDLE = COMPLETED | {EMPTY}

# The first version of transactions in which every end raises the epoch; only there nothing may be aborted.
BUMPING_VERSION = 2


class IllegalTransition(AssertionError):  # noqa: N818 - never caught: a bug in this package
    pass


def check_transition(
    transactional_id: str, before: TransactionState, after: TransactionState, client_version: int
) -> None:
    empty_abort = after is PREPARE_ABORT and before in IDLE
    if after not in TRANSITIONS[before] or (empty_abort and client_version < BUMPING_VERSION):
        raise IllegalTransition(
            f"transactional id {transactional_id}: {before.value} -> {after.value} (version {client_version})"
        )
