"""What was worked off in a retry topic is deleted, now and then and at the end.

Retry topics keep everything: a back-off may be days long, and a group away for weeks. But commits of a group that is
away for long expire, and it reads a retry topic from its first message then: all that was ever retried would be tried
again. So what lies behind the group's commits goes.

It stays where another group may have messages in the same topic (names may hold dots), and at-most-once, where commits
say nothing of what is still to be worked on.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.client.admin.admin import Admin
from penstock.client.errors import ClientError
from penstock.client.retry.policy import RETRY_SUFFIX, splits

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

logger = logging.getLogger("penstock.client")

_SWEEP_SECONDS = 60.0


class Sweep:
    def __init__(self, bootstrap: str, group: str, sources: Mapping[str, str], *, ahead: bool) -> None:
        """`sources`: of each retry topic; `ahead`: at-most-once."""
        self._bootstrap = bootstrap
        self._group = group
        self._sources = sources
        self._ahead = ahead
        self._is_wanted = False
        self._due_at = time.monotonic() + _SWEEP_SECONDS

    def note(self, raws: "Iterable[RawMessage]") -> None:
        """Taken, and worked off some day."""
        self._is_wanted = self._is_wanted or any(raw.topic() in self._sources for raw in raws)

    def run_when_due(self) -> None:
        if self._is_wanted and time.monotonic() >= self._due_at:
            self.run()

    def run(self) -> None:
        if self._ahead or not self._is_wanted:
            return
        self._is_wanted, self._due_at = False, time.monotonic() + _SWEEP_SECONDS
        try:
            self._run(Admin(self._bootstrap))
        except ClientError as error:
            logger.debug("what was worked off in retry topics is not deleted yet: %s", error)

    def _run(self, admin: Admin) -> None:
        committed = admin.committed(self._group)
        known = {topic.name for topic in admin.topics()}
        for name in self._sources:
            done = {index: offset for (topic, index), offset in committed.items() if topic == name}
            if not done or len(splits(name, RETRY_SUFFIX, known)) > 1:
                continue
            first = admin.earliest(name, list(done))
            behind = {index: offset for index, offset in done.items() if offset > first[index]}
            if behind:
                admin.delete_records(name, behind)
