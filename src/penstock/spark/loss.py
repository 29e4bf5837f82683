"""What `failOnDataLoss` decides, in one place: stop, or warn and go on with what is left."""

import logging
from dataclasses import dataclass

from penstock.spark.errors import DataLossError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LossPolicy:
    fail: bool

    def report(self, what: str) -> None:
        if self.fail:
            raise DataLossError(what)
        _log.warning("%s; going on, since failOnDataLoss is false", what)
