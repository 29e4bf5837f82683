"""All logs of a broker together remember so many producers: who may come, who goes early, and what is counted."""

import gc

import pytest
from tests.unit.storage.logs import a_batch, append, opened, sync
from tests.unit.storage.test_producers import DAY_MS, header, refusal, state_after

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PRODUCER_QUIET_MS_MIN, PRODUCERS_AT_ONCE
from penstock.records.relay import RELAY_IDS
from penstock.storage.log import Log
from penstock.storage.producer_budget import ProducerBudget
from penstock.storage.producer_copy import AppendedBatch, ProducerCopy
from penstock.storage.producers import ProducerState
from penstock.storage.replicated import append_replicated, truncate
from penstock.testing.mem_files import MemFiles

MOST, RESERVE = 12, 4


@pytest.fixture
def budget() -> ProducerBudget:
    return ProducerBudget(MOST, RESERVE)


def joined(budget: ProducerBudget, first: int, count: int) -> ProducerState:
    state = state_after(*(header(0, pid=pid) for pid in range(first, first + count)))
    state.join(budget)
    return state


def ids(state: ProducerState) -> list[int]:
    return [copy.producer_id for copy in state.copy()]


# -- the decision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("all_known", "known", "refuses"),
    [
        (MOST - 1, MOST - 1, False),
        (MOST, MOST, True),
        (MOST, 2, True),
        (MOST, 1, False),  # below its share
        (MOST + RESERVE - 1, 1, False),
        (MOST + RESERVE, 0, True),
    ],
)
def test_who_is_refused(budget: ProducerBudget, all_known: int, known: int, *, refuses: bool) -> None:
    budget.logs, budget.known = 2, all_known
    assert budget.refuses(known) is refuses


@pytest.mark.parametrize(
    ("all_known", "known", "excess"), [(6, 6, 0), (8, 8, 2), (12, 12, 6), (12, 5, 3), (12, 2, 0)]
)
def test_how_many_are_too_many(budget: ProducerBudget, all_known: int, known: int, excess: int) -> None:
    budget.logs, budget.known = 2, all_known
    assert budget.excess(known) == excess


def test_a_log_without_others_has_the_whole_reserve(budget: ProducerBudget) -> None:
    assert budget.share == RESERVE


# -- what follows of it ----------------------------------------------------------------------------------------


def test_new_ones_are_refused_everywhere_and_known_ones_go_on(budget: ProducerBudget) -> None:
    first, second = joined(budget, 0, 9), joined(budget, 100, 3)
    for state, known in ((first, 8), (second, 102)):
        assert refusal(state, header(0, pid=50)) == ErrorCode.POLICY_VIOLATION
        assert state.refused == 1
        assert state.check(header(1, pid=known)) is None
        assert state.check(header(0, pid=known)) is not None, "a repeat"


def test_who_fills_a_log_does_not_keep_producers_out_of_others(budget: ProducerBudget) -> None:
    joined(budget, 0, MOST)
    other = joined(budget, 100, 0)
    for pid in range(100, 100 + budget.share):
        assert other.check(header(0, pid=pid)) is None
        other.record(header(0, pid=pid), pid)
    assert refusal(other, header(0, pid=200)) == ErrorCode.POLICY_VIOLATION


def test_those_that_were_quiet_for_longest_go_early_in_all_logs(budget: ProducerBudget) -> None:
    first, second, few = joined(budget, 0, 8), joined(budget, 100, 4), joined(budget, 200, 1)
    states = first, second, few
    for state in states:
        state.expire(0, DAY_MS)
    for pid in (0, 1):
        first.record(header(1, pid=pid), 200 + pid)
    for state in states:
        state.expire(PRODUCER_QUIET_MS_MIN - 1, DAY_MS)
    assert budget.known == 13, "any of them may send its last batch again"
    for state in states:
        state.expire(PRODUCER_QUIET_MS_MIN, DAY_MS)
    assert ids(first) == [0, 1]
    assert ids(second) == [101, 102, 103]
    assert ids(few) == [200], "it has no more than its share"
    assert budget.known == MOST // 2


def test_few_are_remembered_for_as_long_as_the_settings_say(budget: ProducerBudget) -> None:
    states = joined(budget, 0, 3), joined(budget, 100, 3)
    for now_ms in (0, DAY_MS - 1):
        for state in states:
            state.expire(now_ms, DAY_MS)
    assert budget.known == 6
    for state in states:
        state.expire(DAY_MS, DAY_MS)
    assert budget.known == 0


def test_a_relay_counts_as_nobody_and_is_never_forgotten(budget: ProducerBudget) -> None:
    state = joined(budget, 0, MOST)
    told = ProducerCopy(RELAY_IDS, 0, 1, (AppendedBatch(0, 0, 7, 7, 1),))
    state.add([told])
    relays = list(state.relays.by_source)
    assert len(relays) == 1
    assert budget.known == MOST
    state.expire(0, DAY_MS, relays)
    state.expire(PRODUCER_QUIET_MS_MIN, DAY_MS, relays)
    assert budget.known == MOST // 2
    assert list(state.relays.by_source) == relays


def test_the_collector_has_nothing_to_walk_however_many_there_are(budget: ProducerBudget) -> None:
    state = joined(budget, 0, MOST)
    for sequence in range(1, 6):
        for pid in range(MOST):
            state.record(header(sequence, pid=pid), 1000 * sequence + pid)
    again = ProducerState.of(state.copy())
    for each in (state, again):
        each.expire(0, DAY_MS)
        for generation in range(3):  # each lets go of what holds only what the last one let go of
            gc.collect(generation)
        assert not any(map(gc.is_tracked, (*each.rows(), *each._quiet.values())))


def test_others_have_their_turn_while_many_are_looked_at_and_forgotten() -> None:
    count = 3 * PRODUCERS_AT_ONCE
    state = ProducerState.of(ProducerCopy(pid, 0, 1, ()) for pid in range(count))
    state.join(ProducerBudget(count))
    assert sum(1 for _ in state.expiring(0, DAY_MS)) == 3
    turns = state.expiring(DAY_MS, DAY_MS)
    for _ in range(4):
        next(turns)
    assert len(state) == 2 * PRODUCERS_AT_ONCE
    state.record(header(0, pid=count - 1), 1)  # while they are being forgotten
    assert sum(1 for _ in turns) == 2
    assert ids(state) == [count - 1]


def test_what_is_forgotten_at_once_meanwhile_is_no_trouble(budget: ProducerBudget) -> None:
    state = ProducerState.of(ProducerCopy(pid, 0, 1, ()) for pid in range(2 * PRODUCERS_AT_ONCE))
    state.join(budget)
    state.expire(0, DAY_MS)
    turns = state.expiring(DAY_MS, DAY_MS)
    for _ in range(3):
        next(turns)
    state.forget_clients()
    for _ in turns:
        pass
    assert budget.known == 0


# -- what is counted -------------------------------------------------------------------------------------------


def written(budget: ProducerBudget, files: MemFiles, count: int) -> Log:
    log = opened(files).log
    log.producers.join(budget)
    for pid in range(count):
        append(log, a_batch(producer=(pid, 0, 0)))
    return log


def test_what_a_follower_is_given_counts_and_is_not_refused(budget: ProducerBudget) -> None:
    log = written(budget, MemFiles(), MOST + RESERVE)
    batch = a_batch(producer=(99, 0, 0))
    leader = opened(MemFiles()).log
    for pid in range(MOST + RESERVE):
        append(leader, a_batch(producer=(pid, 0, 0)))
    append(leader, batch)
    append_replicated(log, memoryview(batch), 0)
    assert budget.known == MOST + RESERVE + 1


def test_what_is_found_on_disk_counts_once_it_is_served(budget: ProducerBudget) -> None:
    files = MemFiles()
    sync(written(budget, files, 5), checkpoint=True)
    again = opened(files.kill()).log
    assert budget.known == 5, "the log of the process that was killed"
    again.producers.join(budget)
    assert (budget.known, budget.logs) == (10, 2)


def test_a_log_that_is_cut_counts_what_is_left(budget: ProducerBudget) -> None:
    log = written(budget, MemFiles(), 8)
    truncate(log, 3)
    assert (budget.known, budget.logs) == (3, 1)
    append(log, a_batch(producer=(77, 0, 0)))
    assert budget.known == 4


def test_a_log_that_is_closed_does_not_count(budget: ProducerBudget) -> None:
    log, other = written(budget, MemFiles(), 8), written(budget, MemFiles(), 2)
    log.close(deleted=True)
    log.close()
    assert (budget.known, budget.logs) == (2, 1)
    other.close()
    assert (budget.known, budget.logs) == (0, 0)


def test_each_counts_once_however_it_becomes_known(budget: ProducerBudget) -> None:
    state = joined(budget, 0, 3)
    state.record(header(1, pid=2), 200)
    state.add(joined(budget, 2, 2).copy())
    assert (len(state), budget.known) == (4, 4 + 2)
    state.recall(state_after(*(header(0, pid=pid) for pid in (1, 9))).copy(), 1000)
    assert (len(state), budget.known) == (5, 5 + 2)
    state.clear()
    assert budget.known == 2
