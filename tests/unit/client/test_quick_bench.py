"""`penstock bench` reads back what arrived, and ends also where something did not."""

from typing import Any

import pytest

from penstock.client import quick_bench
from penstock.client.errors import ClientError
from penstock.client.quick_bench import QuickBench


class Arrived:
    """A consumer of a topic to which so many messages came."""

    def __init__(self, count: int) -> None:
        self._left = count

    def consume(self, count: int, _: float) -> list[Any]:
        taken = min(count, self._left, 10)
        self._left -= taken
        return [_Message()] * taken

    def close(self) -> None: ...


class _Message:
    def error(self) -> None: ...

    def __len__(self) -> int:
        return 5


def bench(monkeypatch: pytest.MonkeyPatch, *, arrived: int, acks: str) -> QuickBench:
    made = QuickBench.__new__(QuickBench)
    made._topic, made._acks, made._starts = "b", acks, {0: 0}
    made._progress = lambda *_: None
    monkeypatch.setattr(QuickBench, "_consumer", lambda *_: Arrived(arrived))
    monkeypatch.setattr(quick_bench, "REQUEST_SECONDS", 0.0)  # as if so long nothing had come
    return made


def test_it_ends_with_what_arrived_where_nobody_promised_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = bench(monkeypatch, arrived=99, acks="0").consume(100)
    assert (rate.messages, rate.bytes) == (99, 495)
    assert bench(monkeypatch, arrived=100, acks="0").consume(100).messages == 100


@pytest.mark.parametrize(("arrived", "acks", "told"), [(99, "all", "99 of 100"), (0, "0", "nothing of b")])
def test_else_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, arrived: int, acks: str, told: str
) -> None:
    with pytest.raises(ClientError, match=told):
        bench(monkeypatch, arrived=arrived, acks=acks).consume(100)
