"""What the author of a job sees of its errors: their own lines."""

import runpy
from pathlib import Path

import pytest

from penstock.spark.pipelines.run import ScriptError, check_script, own_traceback


def failure(script: Path, text: str) -> str:
    script.write_text(text)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as error:
        return own_traceback(error, str(script))
    raise AssertionError("it did not fail")


def test_only_the_frames_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    said = failure(script, "def half(x):\n    return 1 / x\n\nhalf(0)\n")
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.count("  File ") == 2
    assert "runpy" not in said
    assert said.endswith("ZeroDivisionError: division by zero\n")


def test_frames_of_the_libraries_are_left_out(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "deep.py").write_text("def fail():\n    raise ValueError('deep')\n")
    said = failure(
        tmp_path / "job.py",
        f"import runpy\ndeep = runpy.run_path({str(package / 'deep.py')!r})\n"
        "try:\n    deep['fail']()\nexcept ValueError as error:\n    raise KeyError('k') from error\n",
    )
    assert "deep.py" not in said
    assert "ValueError: deep" in said
    assert "KeyError: 'k'" in said


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    said = failure(tmp_path / "job.py", "x = 1\ny = (\n")
    assert 'job.py", line 2' in said
    assert "SyntaxError" in said
    assert "runpy" not in said


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="does not exist: name the Python file"):
        check_script(str(tmp_path / "no.py"))
    with pytest.raises(ScriptError, match="is a folder"):
        check_script(str(tmp_path))
