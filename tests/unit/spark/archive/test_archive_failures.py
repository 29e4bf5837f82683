"""What Spark raises, in one line: each trouble is told from the others by what stands in the Java trace."""

import pytest
from tests.unit.spark.archive.lakes import OTHER_ID, file

from penstock.core.errors import PenstockError
from penstock.spark.pipelines.archive.compaction import SMALL_BYTES, groups
from penstock.spark.pipelines.archive.errors import ArchiveError, CorruptFileError, LakeError, LakeFullError
from penstock.spark.pipelines.archive.failures import BrokerLostError, ReadLostError, explained, spark_errors

PREFIX = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times\n"
)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "java.io.IOException: No space left on device\n\tat o.a.parquet.hadoop.ParquetFileWriter.end",
            LakeFullError,
            "/lake is full (No space left on device): nothing of this round was archived",
        ),
        (
            "java.io.IOException: No space left on device\n\tat o.a.s.UnsafeSorterSpillWriter.write",
            ArchiveError,
            "no space is left where Spark sorts (No space left on device)",
        ),
        (
            "penstock.spark.errors.DataLossError: t-0 has no offset 3 any more, it begins at 9. Set x\n more",
            ReadLostError,
            "t-0 has no offset 3 any more",
        ),
        (
            "penstock.client.raw.errors.UnknownTopicError: there is no topic b: see x\n more",
            ReadLostError,
            "there is no topic b: see x",
        ),
        (
            "penstock.spark.errors.OptionError: assign names b-2, which the broker does not have\n more",
            ReadLostError,
            "assign names b-2, which the broker does not have",
        ),
        (
            "penstock.client.raw.errors.TimedOutError: reading t-0 at offset 7: no answer\n",
            BrokerLostError,
            "reading t-0 at offset 7: no answer",
        ),
        (
            "penstock.client.errors.UnreachableError: nothing answers at h:1: start a broker\n",
            BrokerLostError,
            "nothing answers at h:1",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/lake/topic=t/1.parquet. SQLSTATE",
            CorruptFileError,
            "file:/lake/topic=t/1.parquet is damaged",
        ),
        ('No FileSystem for scheme "nix"', LakeError, "Spark knows no file system nix:"),
        ("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", LakeError, "hadoop-aws"),
        ("java.net.UnknownHostException: nohost", LakeError, "/lake cannot be reached"),
        ("org.apache.hadoop.security.AccessControlException: no", LakeError, "may not be written"),
        ("something else", ArchiveError, "Spark could not do it"),
    ],
)
def test_each_trouble_is_one_line_of_its_own_kind(text: str, kind: type[PenstockError], words: str) -> None:
    said = explained(RuntimeError(PREFIX + text), "/lake")
    assert type(said) is kind
    assert words in str(said)
    assert "\n" not in str(said)


def test_our_own_errors_pass_as_they_are() -> None:
    for error in (LakeError("x"), FileNotFoundError("x"), FileExistsError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, spark_errors("/lake"):
            raise error
        assert raised.value is error


def test_only_many_small_files_of_one_hour_and_one_incarnation_are_merged() -> None:
    small = [file(number) for number in range(1, 5)]
    assert groups(small, files_max=4) == []
    (group,) = groups([*small, file(9, size_bytes=SMALL_BYTES)], files_max=3)
    assert group.files == tuple(small)
    assert (group.rows, group.size_bytes) == (40, 16)
    assert groups([*small[:2], file(3, topic_id=OTHER_ID), file(4, topic="u")], files_max=2) == []
