"""What the controller makes of what leaders of retired partitions say."""

from dataclasses import replace

from penstock.controller.retiring import (
    RETIRE_TO,
    configs_after,
    frozen,
    live_count,
    newly_led,
    removed,
    seen,
    to_close,
    to_freeze,
)
from penstock.coordination.image import Topic
from penstock.coordination.nodes import (
    PartitionState,
    Removed,
    RetirementState,
    TopicRecord,
    decode_partition,
    decode_topic,
    encode_partition,
    encode_topic,
)
from penstock.coordination.tree import Node
from penstock.wire.peers.retirement import Seen

LIVE = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=5)
GRACE_MS = 1000


def retirement(
    offset: int = 10, written_ms: int = 0, epoch: int = 5, *, hidden: bool = False
) -> PartitionState:
    return replace(LIVE, retirement=RetirementState(offset, 0, written_ms, epoch, hidden))


def a_topic(*partitions: PartitionState, to: int | None = None) -> Topic:
    configs = {} if to is None else {RETIRE_TO: str(to)}
    shown = len(partitions)
    while shown and partitions[shown - 1].hidden:
        shown -= 1
    return Topic("orders", bytes(16), partitions, configs, 0, shown=shown)


def test_partitions_from_the_wished_count_on_are_frozen_once() -> None:
    assert to_freeze(a_topic(LIVE, LIVE, LIVE)) == []
    assert to_freeze(a_topic(LIVE, LIVE, LIVE, to=1)) == [1, 2]
    assert to_freeze(a_topic(LIVE, LIVE, retirement(), to=1)) == [1]
    assert to_freeze(a_topic(LIVE, LIVE, to=3)) == []
    assert live_count(a_topic(LIVE, LIVE, LIVE, to=2)) == 2


def test_a_frozen_partition_keeps_its_leader_and_knows_its_target() -> None:
    after = frozen(LIVE, number=5, live=3, limit=77, now_ms=9)
    assert after == replace(LIVE, retirement=RetirementState(offset=77, into=2, written_ms=9, epoch=5))


def test_a_partition_is_hidden_when_readers_have_nothing_left_here_and_above() -> None:
    both = {1: Seen(10, 0), 2: Seen(9, 0)}
    assert seen(a_topic(LIVE, retirement(), retirement(), to=1), both, GRACE_MS) == {}
    both[2] = Seen(10, 0)
    hidden = seen(a_topic(LIVE, retirement(), retirement(), to=1), both, GRACE_MS)
    assert {number: state.hidden for number, state in hidden.items()} == {1: True, 2: True}
    assert seen(a_topic(LIVE, retirement(), retirement(), to=1), {1: both[1]}, GRACE_MS) == {}


def test_a_hidden_partition_is_shown_again_until_its_next_leader_is_found() -> None:
    state = retirement(epoch=4, hidden=True)  # hidden under the leader before
    topic, nothing_left = (
        a_topic(LIVE, retirement(hidden=True), state, to=1),
        {1: Seen(10, 0), 2: Seen(10, 0)},
    )
    assert not state.hidden
    assert topic.shown == 3
    assert newly_led(topic) == {2: 5}
    assert seen(topic, nothing_left, GRACE_MS) == {}
    assert seen(topic, nothing_left, GRACE_MS, found=[2]) == {2: retirement(hidden=True)}


def test_a_partition_is_not_hidden_from_those_who_look_for_its_next_leader() -> None:
    topic = a_topic(LIVE, retirement(epoch=4), to=1)
    assert seen(topic, {1: Seen(10, 0)}, GRACE_MS) == {}
    assert seen(topic, {1: Seen(10, 0)}, GRACE_MS, found=[1]) == {1: retirement(hidden=True)}
    assert seen(topic, {1: Seen(9, 0)}, GRACE_MS, found=[1]) == {1: retirement()}


def test_writes_are_noted_now_and_then() -> None:
    topic = a_topic(LIVE, retirement(written_ms=5000), to=1)
    assert seen(topic, {1: Seen(0, 5100)}, GRACE_MS) == {}
    changed = seen(topic, {1: Seen(0, 5101)}, GRACE_MS)
    assert changed[1].retirement == RetirementState(10, 0, 5101, 5)


def test_the_last_partition_goes_first_and_only_after_the_grace() -> None:
    topic = a_topic(LIVE, retirement(hidden=True), retirement(hidden=True), to=1)
    old, young = Seen(10, 0), Seen(10, 500)
    assert to_close(topic, {1: old, 2: old}, GRACE_MS, 1000) == 2
    assert to_close(topic, {1: old, 2: young}, GRACE_MS, 1000) is None
    assert to_close(topic, {1: young, 2: old}, GRACE_MS, 1000) == 2
    assert to_close(topic, {1: old}, GRACE_MS, 1000) is None
    assert to_close(a_topic(LIVE, retirement(), to=1), {1: old}, GRACE_MS, 1000) is None
    assert to_close(a_topic(LIVE, LIVE), {}, GRACE_MS, 1000) is None


def test_the_wish_is_forgotten_when_it_has_come_true() -> None:
    topic = a_topic(LIVE, retirement(hidden=True), retirement(hidden=True), to=1)
    assert configs_after(topic, 2) == {RETIRE_TO: "1"}
    assert configs_after(topic, 1) == {}


def test_what_is_retired_is_written_down_and_read_again() -> None:
    state = replace(retirement(2**40, 7, hidden=True), partition_epoch=3)
    assert decode_partition("/", Node(encode_partition(state), version=3, created=0, modified=0)) == state
    record = TopicRecord(bytes(16), 2, {}, version=4, first_epoch=9, removed={2: Removed(5, 7, 3)})
    assert decode_topic("/", Node(encode_topic(record), version=4, created=0, modified=0)) == record


def test_a_topic_written_down_before_ends_were_kept_is_read() -> None:
    record = TopicRecord(bytes(16), 2, {}, first_epoch=9)
    old = encode_topic(record)
    assert b"removed" not in old
    assert decode_topic("/", Node(old, version=0, created=0, modified=0)) == record


def test_who_read_nothing_of_a_partition_still_stands_where_the_one_before_it_was_retired() -> None:
    topic = replace(a_topic(LIVE, retirement(7), to=1), removed={1: Removed(5, 7, 1)})
    assert removed(topic, 1, end=9) == Removed(5, 9, 6)
    assert removed(replace(topic, removed={1: Removed(5, 6, 1)}), 1, end=9) == Removed(7, 9, 6)


def test_a_leader_that_lost_its_log_takes_no_offsets_back() -> None:
    topic = a_topic(LIVE, retirement(10), to=1)
    assert removed(topic, 1, end=0) == Removed(10, 10, 6)
    assert removed(replace(topic, removed={1: Removed(5, 12, 1)}), 1, end=0) == Removed(10, 12, 6)


def test_a_partition_is_shown_again_when_there_is_something_to_read_after_all() -> None:
    """The disk was lost: what is written below the limit from then on is moved nowhere."""
    topic = a_topic(LIVE, retirement(hidden=True), retirement(hidden=True), to=1)
    hidden = seen(topic, {1: Seen(10, 0), 2: Seen(3, 0)}, GRACE_MS)
    assert {number: state.hidden for number, state in hidden.items()} == {2: False}
    newly = a_topic(LIVE, retirement(epoch=4, hidden=True), to=1)
    assert seen(newly, {1: Seen(3, 0)}, GRACE_MS, found=[1]) == {1: retirement()}
