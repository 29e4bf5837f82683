"""The broker's settings as they are now: one object for all who ask, of which only `ConfigService` makes another now.

Ask `now` when a setting is needed, and keep nothing of it across a wait. Who must keep something that follows from the
settings registers with `changes`.
"""

from penstock.config.broker import BrokerConfig
from penstock.core.news import Failed, News


def _raise(_name: str, error: BaseException) -> None:
    raise error


class LiveConfig:
    def __init__(self, config: BrokerConfig, failed: Failed = _raise) -> None:
        self.now = config
        self.changes: News[BrokerConfig] = News(failed)

    def put(self, config: BrokerConfig) -> None:
        """These are in force from now on; whoever hears of it may ask `now` already."""
        self.now = config
        self.changes.tell(config)
