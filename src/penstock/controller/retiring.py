"""Retiring partitions, as the controller decides it: pure functions over what the topic wants and its leaders say.

    penstock.retire.to=n is set        partitions from n on are to be retired
      frozen    its leader has said where readers stop: that offset is written down, once, and never changes
      hidden    retention has left readers nothing, here and in all partitions with a higher number; for a while
                after an election it is shown again, so that those who write to it find its leader
      gone      nobody has written to it for `penstock.retire.grace.ms`, and its leader takes nothing more

Numbers stay without gaps, because clients count: the last partition is hidden first, and goes first.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.coordination.image import Topic
from penstock.coordination.nodes import PartitionState, Removed, RetirementState
from penstock.wire.peers.retirement import Seen

RETIRE_TO = "penstock.retire.to"
# What is written down of the time of the last write may be as much too old, as a share of the grace.
_WRITTEN_NOTED = 10


def live_count(topic: Topic) -> int:
    """How many partitions are there to stay."""
    wanted = topic.configs.get(RETIRE_TO)
    count = len(topic.partitions)
    return count if wanted is None else min(int(wanted), count)


def to_freeze(topic: Topic) -> list[int]:
    return [
        number
        for number in range(live_count(topic), len(topic.partitions))
        if topic.partitions[number].retirement is None
    ]


def frozen(state: PartitionState, number: int, live: int, limit: int, now_ms: int) -> PartitionState:
    return replace(state, retirement=RetirementState(limit, number % live, now_ms, state.leader_epoch))


def newly_led(topic: Topic) -> dict[int, int]:
    """Retired partitions whose producers may still look for the leader, with its epoch."""
    return {
        number: state.leader_epoch
        for number, state in enumerate(topic.partitions)
        if state.retirement is not None and state.retirement.epoch != state.leader_epoch
    }


def seen(
    topic: Topic, sightings: Mapping[int, Seen], grace_ms: int, found: Collection[int] = ()
) -> dict[int, PartitionState]:
    """What to write down of what the leaders say; `found`: newly led, and their producers have had enough time."""
    changed = {}
    above_hidden = True
    for number in reversed(range(len(topic.partitions))):
        state = topic.partitions[number]
        retirement, sighting = state.retirement, sightings.get(number)
        if retirement is None:
            break
        after = replace(retirement, epoch=state.leader_epoch) if number in found else retirement
        if sighting is not None:
            if sighting.written_ms - retirement.written_ms > grace_ms // _WRITTEN_NOTED:
                after = replace(after, written_ms=sighting.written_ms)
            if after.epoch == state.leader_epoch:
                # A log that was lost has room below the limit again: readers are to see what is written there.
                is_over = sighting.start_offset >= retirement.offset
                after = replace(after, hidden=is_over and (after.hidden or above_hidden))
        state = replace(state, retirement=after)
        above_hidden = above_hidden and state.hidden
        if after != retirement:
            changed[number] = state
    return changed


def to_close(topic: Topic, sightings: Mapping[int, Seen], grace_ms: int, now_ms: int) -> int | None:
    """The last partition, if nobody has needed it for long enough.

    One at a time: the one before may be its target, and must be looked at when nothing can come from it any more.
    """
    last = len(topic.partitions) - 1
    sighting = sightings.get(last)
    if last < topic.shown or sighting is None or now_ms - sighting.written_ms < grace_ms:
        return None
    return last


def removed(topic: Topic, number: int, end: int) -> Removed:
    """What stays known of a partition whose leader takes nothing more, and whose log ends there."""
    state, before = topic.partitions[number], topic.removed.get(number)
    assert state.retirement is not None
    end = max(end, state.retirement.offset)  # less is told by a leader that lost its log
    if before is not None:
        end = max(end, before.end)
    return Removed(retired_at(topic, number), end, state.leader_epoch + 1)


def retired_at(topic: Topic, number: int) -> int:
    """Who has read a retired partition up to there has missed nothing."""
    retirement, before = topic.partitions[number].retirement, topic.removed.get(number)
    assert retirement is not None
    if before is not None and retirement.offset == before.end:
        return before.limit  # nobody could read anything in it: who stood in the last one still stands there
    return retirement.offset


def configs_after(topic: Topic, count: int) -> dict[str, str]:
    """The topic's settings when only `count` partitions are left: nothing is wished for that has come true."""
    configs = dict(topic.configs)
    if all(state.retirement is None for state in topic.partitions[:count]):
        configs.pop(RETIRE_TO, None)
    return configs
