"""What is wrong with a consumer group, as far as its coordinator and its topics show.

Heartbeats are seen by the coordinator alone. What shows outside is their result: members that went, members that
came back under a new id, and a group that waits for somebody to join again.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.core.text import count_text
from penstock.diagnosis.findings import Finding, fail, ok, warn
from penstock.diagnosis.group_watch import REBALANCING, Watch
from penstock.diagnosis.retries import retries_text

if TYPE_CHECKING:
    from penstock.client.admin.admin import Retries
    from penstock.client.admin.group_info import GroupOffset

# From this share of the lag on, one partition is what the group waits for.
_SKEW_SHARE = 0.8
_SKEW_LAG_MIN = 100
_NAMED_MAX = 3
# A member that works looks at what is due at once; this much later it is not looked at.
_OVERDUE_SECONDS = 60.0


def group_findings(watch: Watch, retries: "Sequence[Retries]" = ()) -> list[Finding]:
    found = _membership(watch) + _owners(watch) + _places(watch)
    found += _never_read(watch) + _stuck(watch) + _pace(watch) + _skew(watch)
    found += [_retries(watch, retry) for retry in retries]
    for topic in watch.last.deleted_topics:
        found.append(ok("topics", f"{topic} was deleted; what was committed for it expires by itself"))
    return found


def _membership(watch: Watch) -> list[Finding]:
    last = watch.last
    if watch.rebalancing:
        return [_rebalancing(watch)]
    if watch.came or watch.went:
        return [warn("members", _movement(watch), _movement_advice(watch))]
    if not last.members:
        if not last.lag:
            return [ok("members", "nobody is in the group, and nothing waits for it")]
        return [
            fail(
                "members",
                f"nobody is in the group: {count_text(last.lag, 'offset')} wait for a reader",
                # From the beginning where nothing is committed: at the end it would pass over what was never read.
                f"start its consumers (`penstock consume TOPIC --group {last.name} --from-beginning` is one), or "
                f"forget it with `penstock group delete {last.name}`",
            )
        ]
    state = last.state.replace("_", " ")
    return [ok("members", f"{count_text(len(last.members), 'member')}, {state}, nobody came or went")]


def _rebalancing(watch: Watch) -> Finding:
    looks = "at every look" if watch.rebalancing == len(watch.looks) else "in between"
    moved = f"; {_movement(watch)}" if watch.came or watch.went else "; the members are the same"
    found = f"rebalancing {looks} within {watch.seconds:.0f} s{moved}"
    if watch.came or watch.went:
        return warn("rebalance", found, _movement_advice(watch))
    if watch.last.state not in REBALANCING:
        return warn("rebalance", found, "it is over; watch longer with --over to see whether it comes back")
    return fail(
        "rebalance",
        found,
        "it waits until every member has joined again, which a member does when it asks for its next messages: look "
        "for one that works on a message for long (its max.poll.interval.ms ends the wait)",
    )


def _movement(watch: Watch) -> str:
    parts = []
    if watch.came:
        parts.append(
            f"{count_text(len(watch.came), 'member')} came ({_named(member.client_id for member in watch.came)})"
        )
    if watch.went:
        parts.append(
            f"{count_text(len(watch.went), 'member')} went ({_named(member.client_id for member in watch.went)})"
        )
    return ", ".join(parts)


def _movement_advice(watch: Watch) -> str:
    if not watch.went:
        return "new members make a rebalance; it ends by itself when they have joined"
    if not watch.came:
        return "were they stopped? If not, they missed heartbeats for session.timeout.ms: see why they died or stalled"
    return (
        "members that leave and come back were expelled: they missed heartbeats (session.timeout.ms) or took too long "
        "for a message (max.poll.interval.ms); if they are restarted on purpose, group.instance.id spares the rebalance"
    )


def _owners(watch: Watch) -> list[Finding]:
    last = watch.last
    if not last.members or last.state != "stable":
        return []
    found = []
    read = {topic for member in last.members for topic, _ in member.partitions}
    unowned = [flow for flow in watch.flows if flow.member is None]
    orphans = [flow for flow in unowned if flow.topic in read]
    if orphans:
        found.append(
            fail(
                "owners",
                f"nobody reads {_named(flow.name for flow in orphans)}, though the group reads the topic",
                "members see new partitions when they refresh their metadata (topic.metadata.refresh.interval.ms, "
                "metadata.max.age.ms); restart one to have it at once",
            )
        )
    found += [
        warn(
            "owners",
            f"the group has committed for {topic}, but no member reads it",
            f"if that is meant, nothing is to do; else let a member subscribe to {topic} again",
        )
        for topic in sorted({flow.topic for flow in unowned} - read)
    ]
    idle = [member for member in last.members if not member.partitions]
    if idle and not orphans:
        found.append(
            warn(
                "owners",
                f"{len(idle)} of {count_text(len(last.members), 'member')} have no partition to read",
                "there are fewer partitions than members: `penstock topic alter TOPIC --partitions N`, or run fewer",
            )
        )
    return found or [ok("owners", f"every partition has one ({count_text(len(watch.flows), 'partition')})")]


def _places(watch: Watch) -> list[Finding]:
    """Commits that point at nothing."""
    found = []
    name = watch.last.name
    for offset in watch.last.offsets:
        place = f"{offset.topic}[{offset.partition}]"
        reset = f"`penstock group reset {name} --topic {offset.topic} --partition {offset.partition}"
        if offset.committed is None:
            continue
        if offset.committed < offset.earliest:
            gone = count_text(offset.earliest - offset.committed, "offset")
            found.append(
                fail(
                    "commits",
                    f"{place}: committed {offset.committed}, but it begins at {offset.earliest}: "
                    f"{gone} were deleted unread",
                    "retention was faster: keep more (retention.ms, retention.bytes); the group goes on by its "
                    f"auto.offset.reset, or where {reset} --to-earliest` puts it",
                )
            )
        elif offset.committed > offset.latest:
            found.append(
                fail(
                    "commits",
                    f"{place}: committed {offset.committed}, but it ends at {offset.latest}",
                    f"was the topic deleted and made again? Put the group where it should be: {reset} --to-earliest`",
                )
            )
    return found


def _never_read(watch: Watch) -> list[Finding]:
    """What counts as lag, though a reader that begins at the end would pass it over."""
    found = []
    never = watch.last.never_read
    owned = [offset for offset in never if offset.member]
    if owned:
        found.append(
            warn(
                "commits",
                f"nothing was ever committed for {_places_named(owned)}, which a member reads",
                "does it commit? (enable.auto.commit, or a commit of its own); until it does, a restart begins anew",
            )
        )
    waiting = [offset for offset in never if not offset.member]
    if waiting:
        size = count_text(sum(offset.lag for offset in waiting), "offset")
        found.append(
            warn(
                "never read",
                f"nothing of {_places_named(waiting)} was ever read: {size}, all of it counted as lag",
                "a reader that begins at the first message (auto.offset.reset=earliest) gets it; one that begins at "
                "the end passes it over",
            )
        )
    return found


def _places_named(offsets: "Iterable[GroupOffset]") -> str:
    return _named(f"{offset.topic}[{offset.partition}]" for offset in offsets)


def _stuck(watch: Watch) -> list[Finding]:
    """Members with work to do that committed nothing."""
    if watch.last.state != "stable":
        return []
    found = []
    for member in watch.last.members:
        mine = [flow for flow in watch.flows if flow.member == member.id]
        behind = [flow for flow in mine if flow.lag and flow.lag_before and not flow.never_read]
        if not behind or any(flow.read for flow in mine):
            continue
        left = sum(flow.lag for flow in behind)
        instance = f", instance {member.instance_id}" if member.instance_id else ""
        found.append(
            fail(
                "progress",
                f"{member.client_id} at {member.host}{instance} does not get on: {left:,} to read in "
                f"{_named(flow.name for flow in behind)}, nothing committed within {watch.seconds:.0f} s",
                "it is stuck on a message, slow, or commits rarely: watch longer with --over 1m, look at its log; a "
                "message that never works can be put aside (docs/sdk.md, Retry)",
            )
        )
    return found


def _pace(watch: Watch) -> list[Finding]:
    lag, before = watch.last.lag, watch.first.lag
    written = sum(flow.written for flow in watch.flows) / watch.seconds
    read = sum(flow.read for flow in watch.flows) / watch.seconds
    rates = f"{written:,.0f}/s written, {read:,.0f}/s read"
    if not lag:
        return [ok("lag", f"none; {rates}")]
    if not watch.last.members:
        return []
    if lag < before:
        seconds = lag * watch.seconds / (before - lag)
        return [ok("lag", f"{lag:,}, catches up: {rates}; at this pace for another {_time_text(seconds)}")]
    if lag == before:
        return [warn("lag", f"{lag:,}, as before: {rates}", "watch longer with --over to see where it goes")]
    readers = sum(1 for member in watch.last.members if member.partitions)
    spare = len([flow for flow in watch.flows if flow.member]) - readers
    advice = (
        f"add members: up to {spare} more can have a partition"
        if spare > 0
        else "more members find no partition: make the work faster, or `penstock topic alter TOPIC --partitions N` "
        "(keys then move)"
    )
    return [warn("lag", f"{lag:,}, was {before:,}: falls behind with {rates}", advice)]


def _skew(watch: Watch) -> list[Finding]:
    """Of what is read at all: partitions that nobody ever read say nothing about keys or members."""
    flows = [flow for flow in watch.flows if not flow.never_read]
    lag = sum(flow.lag for flow in flows)
    if len(flows) < 3 or lag < _SKEW_LAG_MIN:
        return []
    worst = max(flows, key=lambda flow: flow.lag)
    share = worst.lag / lag
    if share < _SKEW_SHARE:
        return []
    return [
        warn(
            "skew",
            f"{share:.0%} of the lag is in {worst.name}",
            "most messages have keys of that partition, or its member is slower than the others",
        )
    ]


def _retries(watch: Watch, retries: "Retries") -> Finding:
    overdue = retries.due_seconds is not None and retries.due_seconds < -_OVERDUE_SECONDS
    if overdue and watch.last.members:
        return warn(
            "retries",
            retries_text(retries),
            "do its members read with retry=Retry(...)? Others leave them where they are (docs/sdk.md, Retry)",
        )
    return ok("retries", retries_text(retries))


def _named(names: Iterable[str]) -> str:
    """A few of them, and how many more."""
    listed = sorted(set(names))
    shown = ", ".join(listed[:_NAMED_MAX])
    return shown if len(listed) <= _NAMED_MAX else f"{shown} and {len(listed) - _NAMED_MAX} more"


def _time_text(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(1.0, seconds):.0f} s"
