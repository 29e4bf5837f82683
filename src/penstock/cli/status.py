"""`penstock status`: a cluster in one page, with what moves and how long that will take."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.broker_admin import broker_json, print_brokers
from penstock.cli.command import Session, command
from penstock.cli.output import print_json, print_table
from penstock.cli.progress import Pace, bar_text, left_text
from penstock.client.admin.cluster_info import BrokerState
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.admin.cluster_info import ClusterInfo, Progress
    from penstock.client.topic_partition import TopicPartition

_EXAMPLES = ("penstock status", "penstock status --watch", "penstock status --wait && penstock verify")
# Between two looks, to see how fast replicas move.
_LOOK_SECONDS = 1.0
_NAMED_MAX = 10
_CLEAR = "\x1b[H\x1b[2J"


def register(app: typer.Typer) -> None:
    command(app, "status", examples=_EXAMPLES)(status)


def status(
    session: Session,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again every second, until Ctrl-C (with --wait: until then).")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Return only when no partition lacks a leader or a replica and all brokers answer."
        ),
    ] = False,
) -> None:
    """The cluster in one page: brokers, partitions that lack replicas, and replicas on their way.

    With --wait it goes on when all replicas are in sync and none moves: between two brokers of a rolling restart.
    """
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.connect import reach

    reach(session.bootstrap)
    with ClusterAdmin(session.bootstrap) as admin:
        _look_on(session, admin, watch=watch, wait=wait)


def _look_on(session: Session, admin: "ClusterAdmin", *, watch: bool, wait: bool) -> None:
    outlook = Outlook(admin)
    while True:
        outlook.look(twice=not watch and not wait)
        is_done = outlook.is_whole if wait else not watch
        if watch or is_done:
            _show(session, outlook, clear=watch and sys.stdout.isatty())
        if is_done:
            return
        time.sleep(_LOOK_SECONDS)


def _show(session: Session, outlook: "Outlook", *, clear: bool) -> None:
    if clear:
        print(_CLEAR, end="")
    if session.json:
        print_json(outlook.as_json())
    else:
        print_brokers(outlook.found)
        outlook.print()


class Outlook:
    """A cluster looked at once or more, so that it can be said how long moves will take."""

    def __init__(self, admin: "ClusterAdmin") -> None:
        self._admin = admin
        self._pace = Pace()
        self.found: ClusterInfo
        self._moves: dict[TopicPartition, Progress] = {}

    def look(self, *, twice: bool) -> None:
        """Once more; and again a moment later, where something moves and `twice` is asked for."""
        self._look()
        if twice and self._moves:
            time.sleep(_LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        self.found = self._admin.look()
        self._moves = {place: self.found.copied(place) for place in self.found.moving}
        self._pace.note(time.monotonic(), -self._left_bytes)

    @property
    def is_whole(self) -> bool:
        """Every partition has its leader and all its replicas in sync, where they belong, as many as it is to have; and
        every broker answers."""
        found = self.found
        silent = any(broker.state is BrokerState.SILENT for broker in found.brokers.values())
        return not (found.offline or found.under_replicated or found.incomplete or self._moves or silent)

    @property
    def _left_bytes(self) -> int:
        return sum(move.total_bytes - move.done_bytes for move in self._moves.values())

    @property
    def left_seconds(self) -> float | None:
        """None: nothing moves, or nobody can tell."""
        return self._pace.left_seconds(self._left_bytes) if self._moves else None

    def print(self) -> None:
        found = self.found
        print(
            f"{count_text(len(found.partitions), 'partition')}, {len(found.under_replicated)} under-replicated, "
            f"{len(found.offline)} offline"
        )
        for what, places in (("offline", found.offline), ("under-replicated", found.under_replicated)):
            if places:
                print(f"{what}: {_names(places)}")
        for topic, count in found.incomplete.items():
            print(
                f"{topic} has {count.there} of {count_text(count.wanted, 'replica')}: it was made while brokers were "
                "missing, and gets the others when they are there"
            )
        if self._moves:
            self._print_moves()
        if found.trouble:
            print(found.trouble)

    def _print_moves(self) -> None:
        done = sum(move.done_bytes for move in self._moves.values())
        total = sum(progress.total_bytes for progress in self._moves.values())
        print(
            f"{count_text(len(self._moves), 'partition')} on the move: {bar_text(done, total)}, "
            f"{size_text(done)} of {size_text(total)}, {left_text(self.left_seconds)}"
        )
        rows = [
            (str(place), _ids(moving.removing), _ids(moving.adding), bar_text(*self._moves[place]))
            for place, moving in list(self.found.moving.items())[:_NAMED_MAX]
        ]
        print_table(("moving", "from", "to", "copied"), rows)
        if len(self._moves) > _NAMED_MAX:
            print(f"and {len(self._moves) - _NAMED_MAX} more")

    def as_json(self) -> dict[str, Any]:
        found = self.found
        left = self.left_seconds
        return {
            "id": found.id,
            "brokers": [broker_json(broker) for broker in found.brokers.values()],
            **self.partitions_json(),
            "time_left_s": None if left is None else round(left, 1),
            "trouble": found.trouble or None,
        }

    def partitions_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "partitions": len(found.partitions),
            "under_replicated": len(found.under_replicated),
            "offline": len(found.offline),
            "under_replicated_partitions": [str(place) for place in found.under_replicated],
            "offline_partitions": [str(place) for place in found.offline],
            "incomplete_topics": {topic: count._asdict() for topic, count in found.incomplete.items()},
            "moves": [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "adding": list(moving.adding),
                    "removing": list(moving.removing),
                    **self._moves[place]._asdict(),
                }
                for place, moving in found.moving.items()
            ],
        }


def _names(places: "Sequence[TopicPartition]") -> str:
    shown = ", ".join(str(place) for place in places[:_NAMED_MAX])
    return shown if len(places) <= _NAMED_MAX else f"{shown} and {len(places) - _NAMED_MAX} more"


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "-"
