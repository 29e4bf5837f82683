"""Ctrl-C while a batch is being sent: who goes on with the client is not left waiting for it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.raw.fake import QUICK, FakePeer, batch_at, produced

from penstock.client.raw import RawClient, TopicPartition
from penstock.client.raw.link import Link
from penstock.wire.kafka.api_keys import ApiKey

AT = TopicPartition("t", 0)


def test_an_interrupted_producer_takes_nothing_more_and_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was on its way is neither waiting nor under way: a flush would look for it for ever."""
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.on(ApiKey.PRODUCE, produced(50))
        with monkeypatch.context() as patch:
            patch.setattr(Link, "send_parts", _ctrl_c_in(ApiKey.PRODUCE, Link.send_parts))
            with pytest.raises(KeyboardInterrupt):
                client.produce(AT, batch_at(0, [b"x"]))
        assert client.produce(AT, batch_at(0, [b"x"])) == 50


def _ctrl_c_in(wanted: ApiKey, send: Callable[..., int]) -> Callable[..., int]:
    def sent(link: Link, api_key: ApiKey, *more: Any, **options: Any) -> int:
        if api_key == wanted:
            raise KeyboardInterrupt
        return send(link, api_key, *more, **options)

    return sent
