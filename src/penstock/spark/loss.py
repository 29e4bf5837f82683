"""What `failOnDataLoss` decides, in one place: stop, or warn and go on with what is left."""

import logging

from penstock.spark.errors import DataLossError

_log = logging.getLogger(__name__)

# Sentences remembered; a stream that lost more different things than this repeats itself now and then.
_TOLD_MAX = 1_000


class LossPolicy:
    """A stream keeps one: what it found missing in one trigger it finds missing in the next, and says once."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._told: set[str] = set()

    def report(self, what: str, kind: type[DataLossError] = DataLossError) -> None:
        if self._fail:
            raise kind(what)
        if what not in self._told:
            if len(self._told) >= _TOLD_MAX:
                self._told.clear()
            self._told.add(what)
            _log.warning("%s; going on, since failOnDataLoss is false", what)
