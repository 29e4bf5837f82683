"""Sends the drawn requests to both sides and gathers what differs."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.clients.oracle import variants
from tests.clients.oracle.compare import Difference, differences
from tests.clients.oracle.frames import FRAMES, exchange_frame
from tests.clients.oracle.model import (
    API_NAMES,
    CREATE_TOPICS,
    FETCH,
    GROUP_APIS,
    JOIN_GROUP,
    PRODUCE,
    Case,
    Context,
    variants_of,
)
from tests.clients.oracle.normal import normalise
from tests.clients.oracle.sides import ANSWERED, Outcome
from tests.clients.oracle.world import World

from penstock.wire.kafka.generated.index import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.oracle.accepted import Accepted
    from tests.clients.oracle.sides import Side

__all__ = ["Finding", "Result", "run", "variants"]

PER_VERSION = 100
EVENTUALLY_S = 2.0
POLL_S = 0.02
# Every tenth request is one of the others with its bytes spoilt or stretched.
MUTATION_EVERY = 10
OUTCOME = "<outcome>"
FRAME_API = "Frames"
QUOTED = re.compile(r"'[^']*'")
NUMBER = re.compile(r"\d+")
CLASS_CHARS = 160


@dataclass(frozen=True)
class Finding:
    """One difference in one answer."""

    api: str
    version: int
    label: str
    path: str
    left: Any
    right: Any
    request: str

    @property
    def left_class(self) -> str:
        return value_class(self.path, self.left)

    @property
    def right_class(self) -> str:
        return value_class(self.path, self.right)


@dataclass
class Result:
    findings: list[Finding] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    # (API, version, valid) -> how many requests were compared
    sent: Counter[tuple[str, int, bool]] = field(default_factory=Counter)


def value_class(path: str, value: Any) -> str:
    """What is common to the values of a group: codes and small numbers as they are, texts without names."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        exact = path.endswith("error_code") or -2 <= value <= 1
        return str(value) if exact else "<int>"
    if isinstance(value, str):
        if value.startswith("<unknown id"):
            return "<unknown id>"
        if value.startswith("<"):
            return value
        return NUMBER.sub("#", QUOTED.sub("'…'", value))[:CLASS_CHARS] or '""'
    if isinstance(value, list):
        return f"<list of {len(value)}>" if len(value) < 2 else "<list>"
    return f"<{type(value).__name__}>"


def run(
    left: Side,
    right: Side,
    apis: list[int],
    *,
    accepted: list[Accepted],
    seed: int = 1,
    count: int = PER_VERSION,
    versions: Callable[[int, int], bool] = lambda _api, _version: True,
    with_frames: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Compare `right` with `left` on what `right` advertises of `apis`."""
    world = World(left, right)
    world.build()
    result = Result(accepted=accepted)
    advertised = right.advertised()
    for api_key in apis:
        low, high = advertised.get(api_key, (0, -1))
        for version in range(low, high + 1):
            if versions(api_key, version):
                began = time.monotonic()
                before = len(result.findings)
                _compare_version(world, result, api_key, version, count, seed)
                spent, new = time.monotonic() - began, len(result.findings) - before
                progress(f"{API_NAMES[api_key]} v{version}: {new} differences, {spent:.1f} s")
    if with_frames:
        _compare_frames(world, result)
    return result


def _compare_version(world: World, result: Result, api_key: int, version: int, count: int, seed: int) -> None:
    # A seed of its own for each version: what one draws does not move the others.
    context = Context(random.Random(f"{seed}/{api_key}/{version}"), version, world)
    world.make_own_topics(api_key, version)
    if api_key in GROUP_APIS:
        world.groups.ready()
    for case in _draw(context, api_key, count):
        _compare_case(world, result, case)
    world.drop_own_topics(api_key, version)


def _draw(context: Context, api_key: int, count: int) -> Iterator[Case]:
    """Valid and invalid in turn, each kind of request at least once, parameters from the seed."""
    pools = {valid: variants_of(api_key, context.version, valid=valid) for valid in (True, False)}
    for pool in pools.values():
        context.rng.shuffle(pool)
    for number in range(count):
        valid = number % 2 == 0
        pool = pools[valid]
        spoilt = None
        if number % MUTATION_EVERY >= MUTATION_EVERY - 2 or not pool:
            spoilt = _spoil(context, api_key, valid=valid)
        yield spoilt or pool[(number // 2) % len(pool)].case(context)


def _spoil(context: Context, api_key: int, *, valid: bool) -> Case | None:
    """A request that would be good, with other bytes: unknown tags and tails are to be skipped, cuts not."""
    good, bad = (variants_of(api_key, context.version, valid=kind) for kind in (True, False))
    # Of an API that has nothing to say yes to, one that is refused for what it means.
    model = (good or bad)[0].case(context)
    flexible = context.version >= APIS[api_key][3]
    kept = context.rng.random()
    spoilings: list[tuple[str, Callable[[bytes], bytes]]]
    if not valid:
        spoilings = [
            ("cut short", lambda body: body[: int(len(body) * kept)]),
            ("bytes behind the end", lambda body: body + b"behind"),
            ("count beyond the bytes", _count_beyond(api_key, flexible=flexible)),
        ]
    elif flexible:
        spoilings = [("unknown tagged field", _with_tag)]
    else:
        return None
    label, mutate = context.rng.choice(spoilings)
    return Case(
        api_key,
        context.version,
        label,
        valid,
        model.build,
        model.changes_topics,
        model.appears,
        mutate=mutate,
    )


def _with_tag(body: bytes) -> bytes:
    # The body ends with its count of tagged fields, which is 0 for what the variants build.
    return body[:-1] + b"\x01\x63\x03tag"


def _count_beyond(api_key: int, *, flexible: bool) -> Callable[[bytes], bytes]:
    if api_key == FETCH:
        return lambda body: body[:-1]
    if flexible:
        return lambda body: b"\xff\xff\xff\xff\x07" + body[1:]
    return lambda body: b"\x7f\xff\xff\xff" + body[4:]


def _compare_case(world: World, result: Result, case: Case) -> None:
    deadline = time.monotonic() + EVENTUALLY_S
    while True:
        found = _findings(world, case, _exchange(world, case))
        surprising = [
            finding for finding in found if not any(entry.covers(finding) for entry in result.accepted)
        ]
        if not surprising or not case.eventually or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
        for side in world.sides:
            side.look()
    result.sent[API_NAMES[case.api_key], case.version, case.valid] += 1
    result.findings += found
    if case.changes_topics:
        world.settle(case.appears)
    if case.api_key == PRODUCE and any(finding.path.endswith(("error_code", OUTCOME)) for finding in found):
        # One log took what the other refused: their offsets would differ from here on.
        world.make_own_topics(PRODUCE, case.version)
    for follow_up in case.follow_ups:
        _compare_case(world, result, follow_up)


def _findings(world: World, case: Case, outcomes: tuple[Outcome, Outcome]) -> list[Finding]:
    found = _differences(world, outcomes)
    if not found:
        return []
    request = _request_text(world, case)
    return [
        Finding(
            API_NAMES[case.api_key],
            case.version,
            case.label,
            difference.path,
            difference.left,
            difference.right,
            request,
        )
        for difference in found
    ]


def _exchange(world: World, case: Case) -> tuple[Outcome, Outcome]:
    for side in world.sides:
        side.send(case)
    left, right = (side.receive(case) for side in world.sides)
    for side, outcome in zip(world.sides, (left, right), strict=True):
        _learn(side, case, outcome)
    return left, right


def _learn(side: Side, case: Case, outcome: Outcome) -> None:
    """Take over the ids that an answer gives out: the next requests of this side use them."""
    if outcome.kind != ANSWERED:
        return
    if case.api_key == CREATE_TOPICS:
        for topic in outcome.message.topics:
            if topic.error_code == 0 and any(topic.topic_id):
                side.know_topic(topic.name, topic.topic_id)
    if case.group and case.api_key == JOIN_GROUP and outcome.message.member_id:
        side.know_member(case.group, outcome.message.member_id, outcome.message.generation_id)
    if case.session and outcome.message.session_id:
        side.sessions[case.session] = outcome.message.session_id


def _differences(world: World, outcomes: tuple[Outcome, Outcome]) -> list[Difference]:
    left, right = outcomes
    if left.kind != right.kind:
        return [Difference(OUTCOME, left.kind, right.kind)]
    return differences(normalise(left.message, world.left), normalise(right.message, world.right))


def _request_text(world: World, case: Case, limit: int = 400) -> str:
    message = case.build(world.right)
    return re.sub(r"\w+=(?:\[\]|''|b'(?:\\x00){16}'|None)(?:, )?", "", repr(message))[:limit]


def _compare_frames(world: World, result: Result) -> None:
    for label, valid, data in FRAMES:
        left, right = (exchange_frame(side.port, data) for side in world.sides)
        result.sent[FRAME_API, 0, valid] += 1
        if left != right:
            shown = data[:40].hex()
            result.findings.append(Finding(FRAME_API, 0, label, OUTCOME, left, right, shown))
