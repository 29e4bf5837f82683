"""Whether the topic of a name is still the one it was when reading began.

librdkafka goes by the name: it goes on in the new topic at the offset that it had in the old one, or at the first
message where there is no such offset yet.

Any broker is asked, and one that hears late (it is cut off from the others, say) tells the id of the topic before: ids
have no order. So when one tells another id all are asked, and most of them decide.
"""

import time
from typing import TYPE_CHECKING, Any

from penstock.client.admin.topics import topic_id_text
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from penstock.client.admin.admin import Admin

_LOOK_SECONDS = 1.0


class TopicRemadeError(ClientError):
    def __init__(self, topic: str, topic_id: str) -> None:
        """`topic_id`: that of the new one."""
        super().__init__(
            f"{topic} was deleted and made again: offsets of the old one mean nothing in it, run again to read it "
            "(from its first message with --from-beginning)"
        )
        self.topic_id = topic_id


class TopicWatch:
    def __init__(self, admin: "Admin", topic: str, topic_id: str) -> None:
        """`topic_id`: as it was before offsets were asked for."""
        self._admin = admin
        self._topic = topic
        self._id = topic_id
        self._in_doubt = False  # one broker has told another id
        self._answer: Future[Any] | None = None
        self._look_at = time.monotonic() + _LOOK_SECONDS

    def look(self) -> None:
        """TopicRemadeError if it is another one. Waits for nothing: a later look has the answer."""
        if self._answer is None:
            if time.monotonic() >= self._look_at:
                self._answer = self._ask()
            return
        if not self._answer.done():
            return
        answer, self._answer = self._answer, None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        was_in_doubt, self._in_doubt = self._in_doubt, False
        # Deleted, or nobody to ask: the reader itself is told that.
        if answer.exception() is not None:
            return
        found = answer.result()
        if not was_in_doubt:
            self._in_doubt = topic_id_text(found.topic_id) != self._id
        elif found is not None and found != self._id:
            raise TopicRemadeError(self._topic, found)

    def _ask(self) -> "Future[Any]":
        if self._in_doubt:
            return self._admin.asked_id_by_most(self._topic)
        return self._admin.asked_description(self._topic)
