"""The text in which an archive says how far it is: one spelling, and a sentence for everything else."""

import re

import pytest

from penstock.core.archive_progress import TEXT_CHARACTERS_MAX, ArchiveProgress, id_text

ID = bytes(range(16))
TEXT = id_text(ID)


def test_progress_survives_its_own_text() -> None:
    progress = ArchiveProgress(ID, {1: 77, 0: 1000})
    assert str(progress) == f"{TEXT} 0:1000,1:77"
    assert ArchiveProgress.parse(str(progress)) == progress


def test_it_says_the_leader_epoch_of_the_last_archived_record_where_it_is_known() -> None:
    progress = ArchiveProgress(ID, {1: 77, 0: 1000}, {0: 3})
    assert str(progress) == f"{TEXT} 0:1000:3,1:77"
    assert ArchiveProgress.parse(str(progress)) == progress


def test_it_says_which_lake_has_it_where_that_is_known() -> None:
    progress = ArchiveProgress(ID, {0: 1000}, {0: 3}, "4f1c")
    assert str(progress) == f"{TEXT}/4f1c 0:1000:3"
    assert ArchiveProgress.parse(str(progress)) == progress
    assert progress.lowered({0: (5, 1)}).lake == "4f1c"
    assert progress.may_be_of("4f1c")
    assert not progress.may_be_of("other")
    assert ArchiveProgress(ID, {0: 1000}).may_be_of("4f1c")


def test_what_another_lake_has_of_other_partitions_does_not_count() -> None:
    stored = ArchiveProgress(ID, {0: 10, 1: 20}, lake="a")
    assert ArchiveProgress(ID, {0: 11}, lake="a").with_others(stored, [1]).next_offsets == {0: 11, 1: 20}
    assert ArchiveProgress(ID, {0: 11}, lake="b").with_others(stored, [1]).next_offsets == {0: 11}


def test_the_empty_text_is_no_progress() -> None:
    assert ArchiveProgress.parse("") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0:1", "'0:1' is not a topic id"),
        (f"{TEXT[:-1]} 0:1", "is not a topic id"),
        (f"{TEXT[:-1]}x 0:1", "is not a topic id"),  # the same bytes, spelt otherwise
        (TEXT, "'' is not <partition>:<next offset>"),
        (f"{TEXT} ", "'' is not"),
        (f"{TEXT}/ 0:1", "'' is not the id of a lake"),
        (f"{TEXT}/a/b 0:1", "'a/b' is not the id of a lake"),
        (f"{TEXT}/{'a' * 65} 0:1", "is not the id of a lake"),
        (f"{TEXT}  0:1", "' 0:1' is not"),
        (f"{TEXT} 0:1,", "'' is not"),
        (f"{TEXT} 0:1, 1:2", "' 1:2' is not"),
        (f"{TEXT} 0:-1", "'0:-1' is not"),
        (f"{TEXT} 0:1_0", "'0:1_0' is not"),
        (f"{TEXT} 0:٣", "is not <partition>"),
        (f"{TEXT} 0:{2**63}", "is not an offset"),
        (f"{TEXT} 0:1:", "'0:1:' is not"),
        (f"{TEXT} 0:1:-1", "'0:1:-1' is not"),
        (f"{TEXT} 0:1:{2**31}", "is not a leader epoch"),
        (f"{TEXT} 0:1,0:2", "partition 0 is there twice"),
        (f"{TEXT} " + "0" * TEXT_CHARACTERS_MAX, "characters"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        ArchiveProgress.parse(text)
    assert len(str(refused.value)) < 200


def test_it_is_lowered_to_ends_and_never_raised() -> None:
    progress = ArchiveProgress(ID, {0: 10, 1: 20, 2: 30, 3: 40}, {0: 2, 1: 2, 3: 2})
    lowered = progress.lowered({0: (5, None), 1: (99, 7), 3: (5, 1)})
    assert lowered.next_offsets == {0: 5, 1: 20, 2: 30, 3: 5}
    assert lowered.epochs == {1: 2, 3: 1}  # of the record before 5 it may be another one


def test_what_is_stored_of_other_partitions_can_be_kept() -> None:
    stored = ArchiveProgress(bytes(16), {0: 5, 1: 7, 2: 9}, {1: 3})
    made = ArchiveProgress(bytes(16), {0: 8}, {0: 4})
    assert made.with_others(stored, [0, 1, 3]) == ArchiveProgress(bytes(16), {0: 8, 1: 7}, {0: 4, 1: 3})
    assert made.with_others(None, [1]) == made
    assert made.with_others(ArchiveProgress(b"x" * 16, {1: 7}), [1]) == made
