"""Whether the topic of a name is still the one it was when reading began.

librdkafka goes by the name: it goes on in the new topic at the offset that it had in the old one, or at the first
message where there is no such offset yet.
"""

import time
from typing import TYPE_CHECKING, Any

from penstock.client.admin.topics import topic_id_text
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.client.admin.admin import Admin

_LOOK_SECONDS = 1.0
# A broker that has not heard of the new topic yet would have the old one for a newer.
_SEEN_TIMES = 2


class TopicRemadeError(ClientError):
    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic} was deleted and made again: offsets of the old one mean nothing in it, run again to read it "
            "(from its first message with --from-beginning)"
        )


class TopicWatch:
    def __init__(self, admin: "Admin", topic: str, topic_id: str) -> None:
        """`topic_id`: as it was before offsets were asked for."""
        self._admin = admin
        self._topic = topic
        self._id = self._seen = topic_id
        self._times = 0
        self._answer: Future[Any] | None = None
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def look(self) -> None:
        """TopicRemadeError if it is another one. Waits for nothing: a later look has the answer."""
        if self._answer is None:
            if time.monotonic() >= self._look_at:
                self._answer = self._admin.asked_description(self._topic)
            return
        if not self._answer.done():
            return
        answer, self._answer = self._answer, None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        # Deleted, or nobody to ask: the reader itself is told that.
        if answer.exception() is None:
            self._note(topic_id_text(answer.result().topic_id))

    def _note(self, found: str) -> None:
        self._times = self._times + 1 if found == self._seen else 1
        self._seen = found
        if found != self._id and self._times >= _SEEN_TIMES:
            raise TopicRemadeError(self._topic)
