"""Fetch: reads, limits, epochs, and sessions as sequences of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import FETCH, Case, Context, variant
from tests.clients.oracle.variants.common import BAD_EPOCHS, ILLEGAL_NAMES, UNKNOWN_PARTITIONS, unknown_id

from penstock.wire.kafka.generated import fetch
from penstock.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tests.clients.oracle.sides import Side

SESSIONS_SINCE = 7
EPOCHS_SINCE = 9
DIVERGENCE_SINCE = 12
IDS_SINCE = 13
REPLICA_TAG_SINCE = 15
MEGABYTE = 1 << 20
# For topics that a side does not have; not zero, which is no id at all.
STRANGER = b"no topic's id..."
READABLE = ["plain", "timed", "unordered", "compact", "append", "codecs", "idempotent"]


def _part(number: int = 0, offset: int = 0, **options: Any) -> Any:
    options.setdefault("partition_max_bytes", MEGABYTE)
    return fetch.FetchPartition(partition=number, fetch_offset=offset, **options)


def _topic(side: Side, name: str, parts: list[Any]) -> Any:
    return fetch.FetchTopic(topic=name, topic_id=side.topic_ids.get(name, STRANGER), partitions=parts)


def _by_topic(wanted: tuple[tuple[str, Any], ...]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for name, part in wanted:
        topics.setdefault(name, []).append(part)
    return topics


def _fetch(
    *wanted: tuple[str, Any], forget: tuple[tuple[str, int], ...] = (), session: str = "", **options: Any
) -> Any:
    """`session` names a session of this run; each side has its own id for it."""
    options.setdefault("max_wait_ms", 5)
    options.setdefault("min_bytes", 1)
    options.setdefault("max_bytes", MEGABYTE)

    def build(side: Side) -> Any:
        own = dict(options)
        if session:
            own["session_id"] = side.sessions.get(session, 0)
        return fetch.FetchRequest(
            topics=[_topic(side, name, parts) for name, parts in _by_topic(wanted).items()],
            forgotten_topics_data=[
                fetch.ForgottenTopic(
                    topic=name, topic_id=side.topic_ids.get(name, STRANGER), partitions=[number]
                )
                for name, number in forget
            ],
            **own,
        )

    return build


# Good ones


@variant(FETCH, "from an offset", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice(READABLE)
    return _fetch((name, _part(0, ctx.rng.randint(0, ctx.world.ends[name, 0]))))


@variant(FETCH, "several partitions", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0, 3)), ("plain", _part(1, 1)), ("timed", _part(0, 0)))


@variant(FETCH, "limits", valid=True)
def _(ctx: Context) -> Any:
    limit = ctx.rng.choice([0, 1, 100, 500, 3000, 7000])
    options: dict[str, Any] = {"max_bytes": ctx.rng.choice([0, 1, 200, 5000, MEGABYTE])}
    offset = ctx.rng.randrange(5)
    return _fetch(("plain", _part(ctx.rng.choice([0, 1]), offset, partition_max_bytes=limit)), **options)


@variant(FETCH, "limit over several partitions", valid=True)
def _(ctx: Context) -> Any:
    limit = ctx.rng.choice([1, 500, 4000, 10_000])
    return _fetch(("plain", _part(0)), ("plain", _part(1)), ("timed", _part(0)), max_bytes=limit)


@variant(FETCH, "trimmed log", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(("trimmed", _part(0, ctx.rng.randint(7, 12))))


@variant(FETCH, "end of the log", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(
        ("timed", _part(0, ctx.world.ends["timed", 0])),
        ("empty", _part(0, 0)),
        min_bytes=ctx.rng.choice([0, 1]),
    )


@variant(FETCH, "read committed", valid=True)
def _(ctx: Context) -> Any:
    return _fetch((ctx.rng.choice(READABLE), _part(0, 0)), isolation_level=1)


@variant(FETCH, "leader epoch", valid=True, versions=(EPOCHS_SINCE, 99))
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0, 2, current_leader_epoch=ctx.rng.choice([0, -1]))))


@variant(FETCH, "last fetched epoch", valid=True, versions=(DIVERGENCE_SINCE, 99))
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0, 2, last_fetched_epoch=0)))


@variant(FETCH, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _fetch()


@variant(FETCH, "partition twice", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0, 0)), ("plain", _part(0, 5)))


@variant(FETCH, "topic twice", valid=True)
def _(ctx: Context) -> Any:
    return lambda side: fetch.FetchRequest(
        max_wait_ms=5,
        min_bytes=1,
        max_bytes=MEGABYTE,
        topics=[_topic(side, "plain", [_part(0, 3)]), _topic(side, "plain", [_part(1, 1)])],
    )


# Wrong ones


@variant(FETCH, "out of range", valid=False)
def _(ctx: Context) -> Any:
    name, offset = ctx.rng.choice(
        [("plain", 10**6), ("plain", -1), ("plain", -9), ("trimmed", 3), ("trimmed", 13), ("empty", 1)]
    )
    return _fetch((name, _part(0, offset)), ("timed", _part(0, 0)))


@variant(FETCH, "unknown partition", valid=False)
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(ctx.rng.choice(UNKNOWN_PARTITIONS))), ("plain", _part(0)))


@variant(FETCH, "unknown or illegal topic", valid=False, versions=(0, IDS_SINCE - 1))
def _(ctx: Context) -> Any:
    return _fetch((ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), _part(0)))


@variant(FETCH, "unknown id", valid=False, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    topic_id = ctx.rng.choice([ZERO_UUID, unknown_id(ctx.rng)])
    return lambda side: fetch.FetchRequest(
        max_wait_ms=5,
        min_bytes=1,
        topics=[
            fetch.FetchTopic(topic_id=topic_id, partitions=[_part(0)]),
            _topic(side, "plain", [_part(0, 1)]),
        ],
    )


@variant(FETCH, "wrong epoch", valid=False, versions=(EPOCHS_SINCE, 99))
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0, 0, current_leader_epoch=ctx.rng.choice(BAD_EPOCHS))))


@variant(FETCH, "diverging epoch", valid=False, versions=(DIVERGENCE_SINCE, 99))
def _(ctx: Context) -> Any:
    epoch, offset = ctx.rng.choice([(3, 0), (0, 10**6), (-2, 0), (1, 10**6)])
    return _fetch(("plain", _part(0, offset, last_fetched_epoch=epoch)))


@variant(FETCH, "negative limits", valid=False)
def _(ctx: Context) -> Any:
    if ctx.rng.random() < 0.5:
        return _fetch(("plain", _part(0, partition_max_bytes=-1)))
    return _fetch(("plain", _part(0)), max_bytes=ctx.rng.choice([-1, -(2**31)]))


@variant(FETCH, "negative waits", valid=False)
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0)), max_wait_ms=ctx.rng.choice([-1, 0]), min_bytes=ctx.rng.choice([-1, 0]))


@variant(FETCH, "odd isolation level", valid=False)
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0)), isolation_level=ctx.rng.choice([2, 5, -1]))


@variant(FETCH, "as a replica", valid=False, versions=(0, REPLICA_TAG_SINCE - 1))
def _(ctx: Context) -> Any:
    return _fetch(("plain", _part(0)), replica_id=ctx.rng.choice([5, 99]))


@variant(FETCH, "unknown session", valid=False, versions=(SESSIONS_SINCE, 99))
def _(ctx: Context) -> Any:
    session_id, epoch = ctx.rng.choice([(123, 5), (0, 1), (0, -2), (-5, 3), (123, -2)])
    return _fetch(("plain", _part(0)), session_id=session_id, session_epoch=epoch)


# Sessions


def _session_steps(ctx: Context, session: str, *steps: tuple[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The first step opens the session; the others follow on it, in order."""
    cases = [Case(FETCH, ctx.version, label, True, build, session=session) for label, build in steps]
    return cases[0].build, {"session": session, "follow_ups": tuple(cases[1:])}


@variant(FETCH, "session", valid=True, versions=(SESSIONS_SINCE, 99))
def _(ctx: Context) -> Any:
    name = ctx.world.fresh_name("session")
    end = ctx.world.ends["timed", 0]
    return _session_steps(
        ctx,
        name,
        ("opens", _fetch(("timed", _part(0, 0)), session=name, session_epoch=0)),
        ("goes on", _fetch(session=name, session_epoch=1)),
        ("adds a partition", _fetch(("plain", _part(1, 0)), session=name, session_epoch=2)),
        ("moves on", _fetch(("timed", _part(0, end)), ("plain", _part(1, 5)), session=name, session_epoch=3)),
        ("has nothing new", _fetch(session=name, session_epoch=4)),
        ("forgets", _fetch(forget=(("timed", 0),), session=name, session_epoch=5)),
        ("after forgetting", _fetch(("timed", _part(0, 0)), session=name, session_epoch=6)),
        ("closes", _fetch(session=name, session_epoch=-1)),
        ("after closing", _fetch(session=name, session_epoch=7)),
    )


@variant(FETCH, "session, wrong epoch", valid=False, versions=(SESSIONS_SINCE, 99))
def _(ctx: Context) -> Any:
    name = ctx.world.fresh_name("session")
    return _session_steps(
        ctx,
        name,
        ("opens", _fetch(("timed", _part(0, 0)), session=name, session_epoch=0)),
        ("skips an epoch", _fetch(session=name, session_epoch=3)),
        ("goes on", _fetch(session=name, session_epoch=1)),
        ("repeats an epoch", _fetch(session=name, session_epoch=1)),
        ("opens anew", _fetch(("plain", _part(0, 0)), session=name, session_epoch=0)),
        ("goes on", _fetch(session=name, session_epoch=1)),
    )


@variant(FETCH, "session with errors", valid=False, versions=(SESSIONS_SINCE, 99))
def _(ctx: Context) -> Any:
    name = ctx.world.fresh_name("session")
    return _session_steps(
        ctx,
        name,
        ("opens", _fetch(("timed", _part(0, 10**6)), ("plain", _part(9)), session=name, session_epoch=0)),
        ("errors again", _fetch(session=name, session_epoch=1)),
        ("mended", _fetch(("timed", _part(0, 0)), session=name, session_epoch=2)),
        ("unknown topic", _fetch(("unknown", _part(0)), session=name, session_epoch=3)),
        ("again", _fetch(session=name, session_epoch=4)),
        ("forgets", _fetch(forget=(("plain", 9), ("unknown", 0)), session=name, session_epoch=5)),
    )
