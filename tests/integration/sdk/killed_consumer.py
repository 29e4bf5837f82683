"""A consumer that dies at one step of its loop: `python killed_consumer.py '{"bootstrap": …}'`.

Every body writes the message's value to a file. `step` and `nth` say where the process kills itself; without a step
it goes on until it has worked on the message `end`.
"""

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from penstock import Consumer
from penstock.client.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable

order: dict[str, Any] = json.loads(sys.argv[1])
reached = 0


def at(step: str) -> None:
    global reached  # noqa: PLW0603 - a script
    if step == order.get("step"):
        reached += 1
        if reached == order["nth"]:
            os.kill(os.getpid(), signal.SIGKILL)


def around(name: str, before: str, after: str) -> None:
    inner: Callable[..., Any] = getattr(Reader, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        # A look that found nothing, or a commit of nothing, is no step.
        empty = name == "_commit" and not args[1]
        if not empty:
            at(before)
        result = inner(*args, **kwargs)
        if not empty and result:
            at(after)
        return result

    setattr(Reader, name, outer)


around("_take", "before-take", "taken")
around("_commit", "before-commit", "after-commit")

with (
    open(order["file"], "a") as out,
    Consumer(
        order["bootstrap"],
        order["topic"],
        group=order["group"],
        delivery=order["delivery"],
        commit_every=order["commit_every"],
        config={"group.instance.id": "the-one"},  # so that the next process is not made to wait for this one
    ) as consumer,
):
    for message in consumer:
        at("body-begins")
        out.write(message.value.decode() + "\n")
        out.flush()
        at("body-ends")
        if message.value == b"end":
            break
