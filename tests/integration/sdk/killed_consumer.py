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
from penstock.client.consuming.commits import Commits
from penstock.client.consuming.intake import Intake

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


def around(owner: type, name: str, before: str, after: str, happened: "Callable[..., bool]") -> None:
    """`happened` says of the call's arguments whether it was a step: a look that found nothing is none."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        if name == "poll" or happened(*args):
            at(before)
        result = inner(*args, **kwargs)
        if happened(*args):
            at(after)
        return result

    setattr(owner, name, outer)


around(Intake, "poll", "before-take", "taken", lambda intake, *_: bool(intake.inbox))
around(Commits, "send", "before-commit", "after-commit", lambda _commits, _raw, positions: bool(positions))

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
