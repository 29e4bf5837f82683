"""How the bodies of messages ended that run inside `handling`, before anything takes those messages for done.

What became of a body is noted first, in one step, and acted upon then: passed on to its next try where it failed and
there are retries, handed out again where it did not end. Ctrl-C may come in between: the note stays, and who asks for
the next message, commits or leaves acts upon it first. So each step of it can be made twice.

At-most-once, whatever leaves a body without an end is lost, as with a crash: it was committed before.
"""

from collections import deque
from typing import TYPE_CHECKING

from penstock.client.message import Message

if TYPE_CHECKING:
    from penstock.client.consuming.reader import Reader
    from penstock.client.retry.flow import Outcome, RetryFlow


class Bodies:
    def __init__(self, reader: "Reader", flow: "RetryFlow | None") -> None:
        self._reader = reader
        self._flow = flow
        self.open: dict[int, Message] = {}  # under way, by identity
        # Those that have ended, and what they raised; appended to by whoever runs them.
        self.notes: deque[tuple[Message, BaseException | None]] = deque()
        self._outcome: Outcome | None = None  # of the first note: decided once
        # By a loop: the message that it gave away last, until it is noted or known how its body ended.
        self.given: Message | None = None

    def passes_on(self, error: BaseException) -> bool:
        """Whether this failure is taken care of here; any other leaves `handling`."""
        return self._flow is not None and isinstance(error, Exception)

    @property
    def noted_in_order(self) -> bool:
        """Whether a body that ended in order has more than one step behind it."""
        return self._flow is not None and self._flow.ordered

    def succeeded(self, message: Message) -> None:
        if self._flow is not None:
            self._flow.succeeded(self._reader, message)

    def settle(self) -> None:
        """Passing messages on may wait."""
        while self.notes:
            message, error = self.notes[0]
            try:
                self._settle(message, error)
            except Exception:
                if self._outcome is None:  # nothing was decided
                    self._hand_out_again(message)
                del self.notes[0]  # what was decided is kept, and sent again before the next commit
                self._outcome = None
                raise
            # No call: an interruption between the two would give this outcome to the next one.
            del self.notes[0]
            self._outcome = None

    def _settle(self, message: Message, error: BaseException | None) -> None:
        if error is None:
            self.succeeded(message)
        elif self._flow is None or not isinstance(error, Exception):
            self._hand_out_again(message)
        else:
            if self._outcome is None:
                self._outcome = self._flow.decide(message, error)
            self._flow.apply(self._reader, message, self._outcome)

    def _hand_out_again(self, message: Message) -> None:
        self._reader.hand_out_again((message.topic, message.partition), message.offset)

    def broke_off(self, error: BaseException) -> None:
        """`run` ends before its time: the message that its loop gave away, should its body not have begun or not be
        known to end. No other: one that has ended may lie in its next place already."""
        given = self.given
        if given is not None and all(message is not given for message, _ in self.notes):
            self.notes.append((given, _Unended() if isinstance(error, Exception) else error))
            self.given = None

    def leave(self) -> None:
        """At the end: no commit passes a message whose body is under way still, or was not settled."""
        unsettled = [message for message, error in list(self.notes) if error is not None]
        for message in [*self.open.copy().values(), *unsettled]:
            self._reader.keep_back((message.topic, message.partition), message.offset)


class _Unended(BaseException):
    """A body of which no more is known than that it did not end."""
