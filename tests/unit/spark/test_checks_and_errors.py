"""What is missing is said in one line."""

from importlib import metadata
from pathlib import Path

import pytest

from penstock.client.errors import ClientError
from penstock.spark import errors
from penstock.spark.checks import (
    prefer_own_python,
    require_java,
    require_penstock_in,
    require_pyspark,
)


def one_line(raised: pytest.ExceptionInfo[Exception]) -> str:
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_java_missing_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(errors.JavaMissingError) as raised:
        require_java({"PATH": str(tmp_path)})
    assert "apt install openjdk-17-jre-headless" in one_line(raised)


def test_java_home_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(errors.JavaMissingError) as raised:
        require_java({"PATH": "/usr/bin", "JAVA_HOME": str(tmp_path)})
    assert f"JAVA_HOME is {tmp_path}, which has no bin/java" in one_line(raised)


def test_java_in_its_home_is_enough(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    assert require_java({"PATH": "", "JAVA_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize("version", ["4.1.1", "3.5.8", "4.0.0.dev2", "4.2rc1"])
def test_an_old_pyspark_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)
    with pytest.raises(errors.PySparkVersionError) as raised:
        require_pyspark()
    assert f"PySpark {version} is too old" in one_line(raised)
    assert "pyspark>=4.2" in one_line(raised)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0.dev1"])
def test_a_new_pyspark_passes(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: version)
    assert require_pyspark() is None


def test_no_pyspark_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", none)
    with pytest.raises(errors.PySparkVersionError, match=r"pip install .*\[spark\]'"):
        require_pyspark()


def test_the_reason_is_found_inside_what_spark_raised() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in reader\n'
        "penstock.spark.errors.OptionError: unknown option subscibe: did you mean subscribe?\n"
        " SQLSTATE: 38000\n\tat org.apache.spark.Foo"
    )
    assert errors.reason(RuntimeError(text)) == "unknown option subscibe: did you mean subscribe?"


def test_what_is_not_ours_gives_its_first_line() -> None:
    assert errors.reason(RuntimeError("\n  first\nsecond")) == "first"
    assert errors.reason(RuntimeError()) == "RuntimeError"
    assert errors.reason(errors.OptionError("ours")) == "ours"


def python3(folder: Path, code: int = 0) -> str:
    """A Python that has Penstock, or not."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "python3"
    file.write_text(f"#!/bin/sh\nexit {code}\n")
    file.chmod(0o755)
    return str(file)


def test_spark_runs_our_python_where_nobody_says_otherwise(tmp_path: Path) -> None:
    ours, other = python3(tmp_path / "ours"), python3(tmp_path / "other")
    for path, given, chosen in (
        (tmp_path / "other", {}, {"PYSPARK_PYTHON": ours}),
        (tmp_path / "none", {}, {"PYSPARK_PYTHON": ours}),
        (tmp_path / "ours", {}, {}),  # activated: Spark finds it, and so do machines that have it elsewhere
        (tmp_path / "ours", {"PYSPARK_PYTHON": other}, {"PYSPARK_PYTHON": other}),
    ):
        environment = {"PATH": str(path), **given}
        prefer_own_python(environment, ours)
        assert environment == {"PATH": str(path), **chosen}


@pytest.mark.parametrize("executable", [None, ""])
def test_a_python_that_does_not_know_where_it_is_leaves_the_choice_to_spark(
    tmp_path: Path, executable: str | None
) -> None:
    environment = {"PATH": str(tmp_path)}
    prefer_own_python(environment, executable)
    assert environment == {"PATH": str(tmp_path)}
    require_penstock_in(python3(tmp_path / "other"), executable)
    with pytest.raises(errors.WorkerPythonError, match="set PYSPARK_PYTHON=PYTHON"):
        require_penstock_in(python3(tmp_path / "bare", code=1), executable)


def test_workers_without_penstock_are_told_of_with_what_to_set(tmp_path: Path) -> None:
    ours = python3(tmp_path / "ours", code=1)
    require_penstock_in(ours, ours)
    require_penstock_in(python3(tmp_path / "other"), ours)
    require_penstock_in("no-such-python", ours)
    with pytest.raises(errors.WorkerPythonError) as raised:
        require_penstock_in(python3(tmp_path / "bare", code=1), ours)
    assert f"set PYSPARK_PYTHON={ours}" in one_line(raised)


def test_an_address_where_nobody_answers_is_said_at_once() -> None:
    from penstock.spark.batch import BatchReader
    from penstock.spark.options import read_options, write_options
    from penstock.spark.schema import source_schema
    from penstock.spark.streaming import StreamReader
    from penstock.spark.writing import BatchWriter

    schema, at = source_schema(headers=False), {"kafka.bootstrap.servers": "127.0.0.1:1"}
    options = {**at, "subscribe": "orders"}
    for use in (
        lambda: BatchReader(read_options(options, streaming=False), schema).partitions(),
        lambda: StreamReader(read_options(options, streaming=True), schema).initialOffset(),
        lambda: BatchWriter(write_options({**at, "topic": "orders"}), schema),
    ):
        with pytest.raises(ClientError, match=r"nothing answers at 127\.0\.0\.1:1"):
            use()
