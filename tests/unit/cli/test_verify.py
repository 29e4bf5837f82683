"""What `penstock verify` tells those who have to mend what it found."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli import verify as command
from penstock.cli import verify_data
from penstock.cli.command import Session
from penstock.client.admin.cluster_info import ClusterInfo, Replicas
from penstock.client.topic_partition import TopicPartition
from penstock.diagnosis.replica_compare import WRONG_CHECKSUM, Difference
from penstock.diagnosis.replica_verify import Verdict

SESSION = Session("scripted", json=False, debug=False)
MOVE = "out of its data directory"


def verdict(
    partition: int,
    *wrong: int,
    sound: tuple[int, ...] = (),
    whole: tuple[int, ...] | None = None,
    lacking: tuple[int, ...] = (),
) -> Verdict:
    differences = [Difference(broker, 4, WRONG_CHECKSUM, is_damaged=True) for broker in wrong]
    differences += [Difference(broker, 4, "it has the batch of offset 7 there") for broker in lacking]
    whole = sound if whole is None else whole
    return Verdict(TopicPartition("orders", partition), 0, 9, 900, sound, whole, differences)


def named(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"


def all_in_sync(*found: Verdict) -> ClusterInfo:
    """On three brokers."""
    return ClusterInfo("", {}, {each.place: Replicas(1, (1, 2, 3), (1, 2, 3)) for each in found})


def said(capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, *found: Verdict) -> str:
    patch.setattr(command, "_verdicts", lambda *_: list(found))
    patch.setattr(command, "_looked_again", lambda _: all_in_sync(*found))
    with pytest.raises(typer.Exit):
        command.verify(SESSION)
    return capsys.readouterr().err


def test_a_damaged_copy_is_fetched_again_where_another_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = said(capsys, monkeypatch, verdict(0, 3, sound=(1, 2)))
    assert MOVE in told
    assert "  broker 3: topics/orders/Partition-0 (whole on brokers 1, 2)" in told.splitlines()


@pytest.mark.parametrize(
    "now",
    [
        Replicas(1, (1, 2, 3), (1, 3)),
        Replicas(3, (1, 2, 3), (3,)),
        Replicas(-1, (1, 2, 3), (1, 2, 3)),
        Replicas(1, (1, 2, 3, 4), (1, 2, 3, 4), adding=(4,), removing=(1,)),
        Replicas(3, (3, 4), (3, 4)),
        None,
    ],
    ids=["one fell behind", "only the damaged is in sync", "offline", "moving", "moved", "no answer"],
)
def test_nothing_is_moved_away_unless_all_are_in_sync_when_that_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, now: Replicas | None
) -> None:
    found = verdict(0, 3, sound=(1, 2))
    looked = None if now is None else ClusterInfo("", {}, {found.place: now})
    monkeypatch.setattr(command, "_verdicts", lambda *_: [found])
    monkeypatch.setattr(command, "_looked_again", lambda _: looked)
    with pytest.raises(typer.Exit):
        command.verify(SESSION)
    told = capsys.readouterr().err
    assert MOVE not in told
    assert "Move none of them away" in told
    assert "  orders-0: keep it on brokers 1, 2, 3" in told.splitlines()


def test_nor_where_a_copy_could_not_be_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(0, 3, sound=(1,))
    found.unread[2] = "it is dead"
    told = said(capsys, monkeypatch, found)
    assert MOVE not in told
    assert "Move none of them away" in told


def test_it_says_when_and_what_to_wait_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them done, or left out, by `tests/sim/test_verify_advice.py`."""
    told = said(capsys, monkeypatch, verdict(0, 3, sound=(1, 2)))
    assert "Only while `penstock status` shows 0 under-replicated and 0 offline" in told
    assert "one broker at a time" in told
    assert "If one of them is offline, start it again as it is" in told
    assert "`penstock status --wait`" in told
    assert "keep what was moved away" in told


@pytest.mark.parametrize("wrong", [(1,), (1, 2, 3)], ids=["the only copy", "every copy"])
def test_nobody_is_told_to_throw_away_the_last_copy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, ...]
) -> None:
    told = said(capsys, monkeypatch, verdict(0, *wrong))
    assert MOVE not in told
    assert "1 partition with no whole copy: keep their files" in told
    assert f"  orders-0: keep it on {named(wrong)}" in told.splitlines()


@pytest.mark.parametrize(
    "found",
    [
        verdict(0, sound=(3,), lacking=(1,)),
        verdict(0, 2, sound=(3,), lacking=(1,)),
        verdict(0, 2, sound=(1, 3), whole=()),
    ],
    ids=["copies that lack records", "one of them is damaged, too", "no other one is whole and in sync"],
)
def test_nobody_is_told_to_throw_away_what_another_copy_may_lack(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: Verdict
) -> None:
    told = said(capsys, monkeypatch, found)
    assert MOVE not in told
    assert "orders-0" in told
    assert "move none of them away" in told
    # Done otherwise in `tests/unit/storage/test_overlaps.py`.
    assert "its own, from a backup of its own; never another broker's" in told
    assert "nor where the topic was ever compacted" in told


def test_of_compacted_topics_all_files_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdict(0, 2, sound=(1, 3), whole=())
    found.is_compacted = True
    told = said(capsys, monkeypatch, found)
    assert MOVE not in told
    assert "keep the files of all" in told
    assert "can be put back" not in told  # segments that were compacted apart do not fit together


def test_both_are_told_of_where_both_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = [verdict(0, 1), verdict(1, 2, sound=(1, 3))]
    told = said(capsys, monkeypatch, *found)
    assert MOVE in told
    assert "no whole copy" in told
    assert told.splitlines()[1].startswith("  broker 2: topics/orders/Partition-1 ")
    assert told.splitlines()[3] == "  orders-0: keep it on broker 1"


def test_every_partition_and_broker_is_named_below_the_advice_that_is_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many at once: who moved away what another advice keeps would lose it."""
    moved = [verdict(0, 2, sound=(1, 3)), verdict(1, 3, 1, sound=(2,)), verdict(2, 2, sound=(1, 3))]
    unlike = [verdict(number, sound=(3,), lacking=(1, 2)) for number in range(3, 30)]
    compacted = [verdict(number, 2, sound=(1, 3), whole=()) for number in range(30, 33)]
    for found in compacted:
        found.is_compacted = True
    last = [verdict(33, 1, 2, 3), verdict(34, 1, 2)]
    last[1].unread[3] = "it is dead"
    told = said(capsys, monkeypatch, *moved, *unlike, *compacted, *last).splitlines()
    heads = [number for number, line in enumerate(told) if line.startswith("penstock: ")]
    lists = [told[head + 1 : end] for head, end in zip(heads, [*heads[1:], len(told)], strict=True)]
    assert lists == [
        [
            "  broker 1: topics/orders/Partition-1 (whole on broker 2)",
            "  broker 2: topics/orders/Partition-0 (whole on brokers 1, 3)",
            "  broker 2: topics/orders/Partition-2 (whole on brokers 1, 3)",
            "  broker 3: topics/orders/Partition-1 (whole on broker 2)",
        ],
        [f"  orders-{number}: keep it on brokers 1, 2, 3" for number in range(3, 30)],
        [f"  orders-{number}: keep it on brokers 1, 2, 3" for number in range(30, 33)],
        [f"  orders-{number}: keep it on brokers 1, 2, 3" for number in (33, 34)],
    ]


def test_json_has_the_advice_for_each_partition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted = verdict(1, 2, sound=(1, 3), whole=())
    compacted.is_compacted = True
    found = [verdict(0, 2, sound=(1, 3)), compacted, verdict(2, sound=(1, 2, 3)), verdict(3, sound=(1, 2))]
    found[3].unread[3] = "it is dead"
    monkeypatch.setattr(command, "_verdicts", lambda *_: found)
    monkeypatch.setattr(command, "_looked_again", lambda _: all_in_sync(*found))
    with pytest.raises(typer.Exit):
        command.verify(Session("scripted", json=True, debug=False))
    moved, kept, fine, unread = json.loads(capsys.readouterr().out)["partitions"]
    assert (moved["whole"], moved["compacted"], moved["advice"]["action"]) == ([1, 3], False, "move away")
    assert (moved["advice"]["folder"], moved["advice"]["move_away"], moved["advice"]["keep"]) == (
        "topics/orders/Partition-0",
        [2],
        [1, 3],
    )
    assert (kept["whole"], kept["compacted"], kept["advice"]["action"]) == ([], True, "keep all, compacted")
    assert (kept["advice"]["move_away"], kept["advice"]["keep"]) == ([], [1, 2, 3])
    assert "move none of them away" in kept["advice"]["what"]
    assert fine["advice"] is None
    assert unread["advice"]["action"] == "bring brokers back"


def test_who_sees_one_data_dir_only_throws_nothing_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others may have less; done to the letter by `tests/sim/test_verify_advice.py`."""
    (tmp_path / "topics/orders/Partition-0").mkdir(parents=True)
    monkeypatch.setattr(verify_data, "check_data_dir", lambda *_: None)
    monkeypatch.setattr(verify_data, "check_partition", lambda *_, **__: ("a segment is missing", 900))
    with pytest.raises(typer.Exit):
        verify_data.verify_data_dir(SESSION, tmp_path)
    told = capsys.readouterr().err
    assert "start the broker as it is" in told
    assert "move no folder away" in told
