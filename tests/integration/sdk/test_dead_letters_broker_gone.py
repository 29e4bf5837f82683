"""A broker that dies while dead letters are looked at."""

from typing import Any

import pytest

from penstock import Admin, Producer
from penstock.client.consuming import alone
from penstock.client.errors import UnreachableError
from penstock.client.retry.dead_letters import DeadLetterBox
from penstock.testing import broker


def test_who_looks_at_dead_letters_is_told_that_the_broker_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for ever."""
    with broker({"auto.create.topics.enable": "false"}) as process:
        admin = Admin(process.bootstrap)
        for name in ("orders", "orders.billing.dlq"):
            admin.create(name, partitions=1)
        with Producer(process.bootstrap) as producer:
            producer.send("orders.billing.dlq", b"letter").result()
        box = DeadLetterBox(process.bootstrap)
        assert [letter.value for letter in box.messages("orders", "billing")] == [b"letter"]
        begin_at = alone.begin_at

        def die(*given: Any) -> Any:
            """Before the first of them is read."""
            begun = begin_at(*given)
            process.kill()
            return begun

        monkeypatch.setattr(alone, "begin_at", die)
        with pytest.raises(UnreachableError, match="nothing answers at"):
            list(box.messages("orders", "billing"))
