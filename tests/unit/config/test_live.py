"""One object for all who ask for settings: whoever hears of a change finds it in force."""

import pytest

from penstock.config.broker import BrokerConfig
from penstock.config.live import LiveConfig


def with_connections(number: int) -> BrokerConfig:
    return BrokerConfig.resolve({"max.connections": str(number)})


def test_a_change_is_in_force_before_anybody_hears_of_it() -> None:
    live = LiveConfig(with_connections(1))
    seen: list[tuple[int, int]] = []
    live.changes.register(lambda config: seen.append((config.max_connections, live.now.max_connections)))
    live.put(with_connections(2))
    assert seen == [(2, 2)]


def test_it_is_in_force_although_one_cannot_take_it() -> None:
    failed: list[str] = []
    live = LiveConfig(with_connections(1), lambda name, error: failed.append(str(error)))

    def refuse(config: BrokerConfig) -> None:
        raise ValueError("no")

    live.changes.register(refuse)
    live.put(with_connections(2))
    assert (live.now.max_connections, failed) == (2, ["no"])


def test_without_an_owner_an_error_is_the_tellers() -> None:
    live = LiveConfig(with_connections(1))
    live.changes.register(lambda config: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        live.put(with_connections(2))
