"""Random commits, transactions, markers and tombstones: what is held, what is loaded again, also of a compacted log,
and what Kafka's rule says of the same records are one and the same.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits import GROUP_BYTES
from penstock.groups.offsets.table import offset_bytes
from penstock.groups.records.keys import OffsetKey, encode_group_key, encode_offset_key
from penstock.groups.records.offset_value import CommittedOffset, encode_offset_value
from penstock.groups.state import CoordinatorState

PRODUCERS = (1, 2, 3)
KEYS = [OffsetKey(group, topic, 0) for group in ("g", "h") for topic in ("t", "u")]


class Record(NamedTuple):
    """`producer` -1: of no transaction. `committed` not None: a marker. Without a key and a marker: of a group."""

    at: int
    producer: int
    key: OffsetKey | None = None
    value: int | None = None
    committed: bool | None = None


@dataclass
class Model:
    """Kafka's rule, with the offsets of records."""

    committed: dict[OffsetKey, tuple[int, int]] = field(
        default_factory=dict
    )  # (where it is in the log, value)
    pending: dict[int, dict[OffsetKey, tuple[int, int]]] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        if record.committed is not None:
            for key, found in self.pending.pop(record.producer, {}).items():
                if record.committed and self.committed.get(key, (-1, 0))[0] < found[0]:
                    self.committed[key] = found
        elif record.key is None:
            pass
        elif record.value is None:
            self.committed.pop(record.key, None)
            for keys in self.pending.values():
                keys.pop(record.key, None)
        elif record.producer < 0:
            self.committed[record.key] = (record.at, record.value)
        else:
            self.pending.setdefault(record.producer, {})[record.key] = (record.at, record.value)

    def seen(self) -> tuple[dict[OffsetKey, int], set[tuple[OffsetKey, int]], set[str]]:
        committed = {key: value for key, (_, value) in self.committed.items()}
        pending = {(key, producer) for producer, keys in self.pending.items() for key in keys}
        return committed, pending, {key.group for key in (*committed, *(key for key, _ in pending))}


def take(state: CoordinatorState, record: Record) -> None:
    if record.committed is not None:
        state.transaction_ended(record.producer, committed=record.committed)
    elif record.key is None:
        state.apply(encode_group_key("g"), None, record.at)
    else:
        value = None
        if record.value is not None:
            value = encode_offset_value(CommittedOffset(record.value, metadata="x" * (record.value % 5)))
        state.apply(encode_offset_key(*record.key), value, record.at, record.producer)


def seen(state: CoordinatorState) -> tuple[dict[OffsetKey, int], set[tuple[OffsetKey, int]], set[str]]:
    committed = {
        OffsetKey(group, topic, partition): value.offset
        for group, table in state.offsets.items()
        for topic, partition, value in table.all()
    }
    pending = {
        (OffsetKey(group, *place), producer)
        for group, waiting in state.pending.by_group.items()
        for place, producers in waiting.items()
        for producer in producers
    }
    return committed, pending, set(state.groups)


def loaded(log: list[Record]) -> CoordinatorState:
    state = CoordinatorState()
    for record in log:
        take(state, record)
    return state


def compacted(log: list[Record]) -> list[Record]:
    """As the cleaner leaves it: up to the first open transaction, without what was aborted, the last of each key."""
    opened: dict[int, int] = {}
    aborted: set[int] = set()
    inside: dict[int, list[int]] = {}
    for record in log:
        if record.committed is not None:
            opened.pop(record.producer, None)
            written = inside.pop(record.producer, [])
            aborted.update([] if record.committed else written)
        elif record.producer >= 0:
            opened.setdefault(record.producer, record.at)
            inside.setdefault(record.producer, []).append(record.at)
    stable = min(opened.values(), default=len(log))
    last = {
        record.key: record.at
        for record in log
        if record.at < stable and record.key is not None and record.at not in aborted
    }
    return [
        record
        for record in log
        if record.at >= stable
        or record.committed is not None
        or (record.key is not None and record.value is not None and last.get(record.key) == record.at)
    ]


key, producer = st.sampled_from(KEYS), st.sampled_from(PRODUCERS)
value = st.integers(0, 1000)
step = st.one_of(
    st.tuples(st.just(-1), key, value),
    st.tuples(producer, key, value),
    st.tuples(producer, key, value),
    st.tuples(st.just(-1), key, st.none()),
    st.tuples(producer, st.booleans()),
    st.tuples(producer, st.booleans()),
    st.just(()),
)


def record_of(at: int, what: tuple[object, ...]) -> Record:
    match what:
        case (int(by), bool(committed)):
            return Record(at, by, committed=committed)
        case (int(by), OffsetKey() as where, number):
            assert number is None or isinstance(number, int)
            return Record(at, by, where, number)
    return Record(at, -1)


@given(st.lists(step, max_size=40))
def test_held_loaded_and_computed_are_the_same(steps: list[tuple[object, ...]]) -> None:
    model, state, log = Model(), CoordinatorState(), list[Record]()
    for at, what in enumerate(steps):
        log.append(record_of(at, what))
        model.take(log[-1])
        take(state, log[-1])
        assert seen(state) == model.seen()
    for again in (loaded(log), loaded(compacted(log))):
        assert seen(again) == model.seen()
        assert again.size_bytes == state.size_bytes
        for each in PRODUCERS:  # however open transactions end
            again.transaction_ended(each, committed=True)
    for each in PRODUCERS:
        take(state, Record(len(log), each, committed=True))
        model.take(Record(len(log), each, committed=True))
    assert seen(state) == seen(again) == model.seen()
    rest = sum(
        offset_bytes(entry.metadata) for table in state.offsets.values() for _, _, entry in table.all()
    )
    assert state.size_bytes == rest + sum(GROUP_BYTES + len(group) for group in state.groups)
