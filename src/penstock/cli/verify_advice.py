"""What to do about copies that are not the same, partition by partition, so that whoever does it loses nothing.

A copy may only be moved away that is damaged, and where another one in sync lacks nothing. One that is sound and not
the same may be the only one to have something, whoever leads. And what was true of a partition when its copies were
read need not be true when somebody acts on it: whoever is in sync is looked at once more before anything is said, and
the advice names what has to be looked at before and behind the stop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.cli.command import say, say_error
from penstock.core.text import count_text

if TYPE_CHECKING:
    from penstock.client.admin.cluster_info import ClusterInfo
    from penstock.diagnosis.replica_verify import Verdict


class Action(StrEnum):
    MOVE_AWAY = "move away"  # the damaged copies: whole ones are fetched in their place
    WAIT = "wait"  # as before, but not all are in sync, or some could not be read
    KEEP_ALL = "keep all"  # each may have what no other has
    KEEP_ALL_COMPACTED = "keep all, compacted"
    KEEP_LAST = "keep, none is whole"
    BRING_BACK = "bring brokers back"  # nothing is wrong with those that could be read


@dataclass(frozen=True, slots=True)
class Advice:
    verdict: "Verdict"
    action: Action

    @property
    def damaged(self) -> list[int]:
        """The brokers whose copies are to be fetched anew."""
        moves = self.action is Action.MOVE_AWAY
        return sorted({what.broker for what in self.verdict.differences}) if moves else []

    @property
    def folder(self) -> str:
        """In a broker's data directory."""
        return f"topics/{self.verdict.place.topic}/Partition-{self.verdict.place.partition}"

    @property
    def brokers(self) -> list[int]:
        """All that have, or may have, a copy."""
        verdict = self.verdict
        return sorted({*verdict.compared, *verdict.unread, *(what.broker for what in verdict.differences)})

    def as_json(self) -> dict[str, Any]:
        return {
            "action": str(self.action),
            "what": _WORDS[self.action],
            "folder": self.folder,
            "move_away": self.damaged,
            "keep": [broker for broker in self.brokers if broker not in self.damaged],
        }


def advice_on(verdict: "Verdict", now: "ClusterInfo | None") -> Advice | None:
    """`now`: the cluster, looked at after the copies were read; None: it did not answer. No advice: all is well."""
    if not verdict.differences:
        return Advice(verdict, Action.BRING_BACK) if verdict.unread else None
    if not verdict.compared:
        return Advice(verdict, Action.KEEP_LAST)
    if verdict.whole and all(what.is_damaged for what in verdict.differences):
        return Advice(verdict, Action.MOVE_AWAY if _is_settled(verdict, now) else Action.WAIT)
    return Advice(verdict, Action.KEEP_ALL_COMPACTED if verdict.is_compacted else Action.KEEP_ALL)


def _is_settled(verdict: "Verdict", now: "ClusterInfo | None") -> bool:
    """Whether every copy was read, and all are in sync: also those that were found to be whole."""
    replicas = None if now is None else now.partitions.get(verdict.place)
    if replicas is None or verdict.unread or replicas.is_offline or replicas.is_moving:
        return False
    return not replicas.is_under_replicated and set(verdict.whole) <= set(replicas.in_sync)


# -- words --------------------------------------------------------------------------------------------------------

_WORDS = {
    Action.MOVE_AWAY: (
        "damaged copies, and others that are whole. Only while `penstock status` shows 0 under-replicated and 0 "
        "offline, and one broker at a time: stop the broker. When `penstock status` shows it dead, and none of these "
        "partitions offline, move the folders that are named for it, and no others, out of its data directory, and "
        "start it: it fetches whole copies. If one of them is offline, start it again as it is. Wait with `penstock "
        "status --wait` before the next broker, and keep what was moved away until `penstock verify` finds all copies "
        "identical. Where a copy does not get in sync, a damaged one leads (`penstock topic describe`): restart that "
        "broker as it is"
    ),
    Action.WAIT: (
        "damaged copies, and others that are whole, but not all are in sync now, or not all could be read: what is "
        "acknowledged meanwhile may be in a damaged one alone. Move none of them away. Bring all brokers back, wait "
        "with `penstock status --wait`, and ask `penstock verify` again"
    ),
    Action.KEEP_ALL: (
        "copies that are not the same, or damaged, and none that is proven to have everything: each may have records "
        "that no other has, so move none of them away. Copy the partition folders of all brokers that are named to a "
        "safe place first. Files that went from a broker can be put back while it is stopped: its own, from a backup "
        "of its own; never another broker's, whose segments begin at other offsets, nor where the topic was ever "
        "compacted"
    ),
    Action.KEEP_ALL_COMPACTED: (
        "copies that are damaged or not the same, and no other copy is proven whole: every broker compacts for itself, "
        "so what one lacks may have been compacted away, or lost. So keep the files of all: copy the partition folders "
        "of all brokers that are named to a safe place before anything else, and move none of them away"
    ),
    Action.KEEP_LAST: (
        "no whole copy: keep their files, for what is damaged is in no other copy; bring back a backup, or brokers "
        "that could not be read"
    ),
    Action.BRING_BACK: "copies that could not be compared: bring all brokers back, try again",
}


def tell(advices: Sequence[Advice]) -> None:
    """Each kind of advice once, and below it every partition and broker that it is for."""
    for action in Action:
        if chosen := [advice for advice in advices if advice.action is action]:
            say_error(f"{count_text(len(chosen), 'partition')} with {_WORDS[action]}")
            for line in _LINES.get(action, _partition_lines)(chosen):
                say(f"  {line}")


def _folder_lines(advices: Sequence[Advice]) -> list[str]:
    """By broker, since they are stopped one by one."""
    return [
        f"broker {broker}: {advice.folder} (whole on {_ids(advice.verdict.whole)})"
        for broker, advice in sorted(
            ((broker, advice) for advice in advices for broker in advice.damaged),
            key=lambda found: (found[0], found[1].verdict.place),
        )
    ]


def _partition_lines(advices: Sequence[Advice]) -> list[str]:
    return [f"{advice.verdict.place}: keep it on {_ids(advice.brokers)}" for advice in advices]


def _no_lines(advices: Sequence[Advice]) -> list[str]:
    """Brokers that could not be read are told of, one by one, with the table."""
    return []


_LINES: dict[Action, Callable[[Sequence[Advice]], list[str]]] = {
    Action.MOVE_AWAY: _folder_lines,
    Action.BRING_BACK: _no_lines,
}


def _ids(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
