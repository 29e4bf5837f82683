"""What Spark raises in a replay, in words about the replay."""

from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.replaying.errors import ReplayError
from penstock.spark.pipelines.replaying.job import _said


def test_a_full_disk_is_not_taken_for_a_full_lake() -> None:
    said = _said(Exception("java.io.IOException: No space left on device"), "/lake")
    assert type(said) is ReplayError
    assert "spark.local.dir" in str(said)


def test_trouble_with_the_target_keeps_its_own_words() -> None:
    raised = Exception(
        "Job aborted\nTraceback\n"
        "penstock.spark.pipelines.replaying.errors.OtherWriterError: somebody else writes to t-0\n"
    )
    assert str(_said(raised, "/lake")) == "somebody else writes to t-0"


def test_a_damaged_file_is_one() -> None:
    raised = Exception(
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        "file:///lake/topic=t/x.parquet. SQLSTATE: KD001"
    )
    said = _said(raised, "/lake")
    assert isinstance(said, CorruptFileError)
    assert said.where.endswith("x.parquet")
