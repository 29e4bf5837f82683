"""What must be there before Spark can run: each lack is one line that says what to install."""

import os
import shutil
import subprocess
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path

from penstock.core.distribution import install
from penstock.spark.errors import JavaMissingError, PySparkVersionError, WorkerPythonError

# Admission control, AvailableNow and Arrow stream writers for Python sources came together in this one.
PYSPARK_MIN = (4, 2)
JAVA_MIN = 17


def require_pyspark() -> None:
    """PySpark, new enough; asked of the package's metadata, so that an old one need not be imported."""
    wanted = ".".join(map(str, PYSPARK_MIN))
    try:
        found = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise PySparkVersionError(
            f"PySpark is not installed: {install('spark')} (PySpark {wanted} or newer)"
        ) from None
    if _release(found) < PYSPARK_MIN:
        raise PySparkVersionError(
            f"PySpark {found} is too old for the data source: pip install --upgrade 'pyspark>={wanted}'"
        )


def _release(version: str) -> tuple[int, ...]:
    """`4.2.0.dev3` is (4, 2, 0): what is not a number ends it."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def prefer_own_python(environment: MutableMapping[str, str], executable: str | None) -> None:
    """Let Spark run the Python that runs us. It takes `python3` of the PATH unless it is told; in a virtual environment
    that is not activated that one has no Penstock, and Spark finds no source. The JVM reads it when it starts. An
    embedded Python may not know where it is: then the choice stays Spark's."""
    if executable and "PYSPARK_PYTHON" not in environment:
        found = shutil.which("python3", path=environment.get("PATH"))
        if found is None or Path(found) != Path(executable).with_name("python3"):
            environment["PYSPARK_PYTHON"] = executable


def require_penstock_in(python: str, executable: str | None) -> None:
    """That the Python of Spark's workers has Penstock; asked of it only where it is another one than ours."""
    found = shutil.which(python)
    if found is None or (executable and Path(found).parent == Path(executable).parent):
        return
    done = subprocess.run([found, "-c", "import pyspark_penstock"], capture_output=True, check=False)
    if done.returncode:
        raise WorkerPythonError(
            f"Spark's workers run {found}, which has no Penstock: import penstock.spark before the session is made, or "
            f"set PYSPARK_PYTHON={executable or 'PYTHON'}"
        )


def require_java(environment: dict[str, str] | None = None) -> None:
    """Spark's launcher looks at JAVA_HOME, then at the PATH; so does this, before anything is started."""
    environment = dict(os.environ) if environment is None else environment
    install = f"install a Java {JAVA_MIN} runtime (Debian: apt install openjdk-{JAVA_MIN}-jre-headless)"
    home = environment.get("JAVA_HOME")
    if home:
        if not (Path(home) / "bin" / "java").is_file():
            raise JavaMissingError(
                f"JAVA_HOME is {home}, which has no bin/java: correct or unset it, or {install}"
            )
    elif shutil.which("java", path=environment.get("PATH", "")) is None:
        raise JavaMissingError(f"Spark needs Java and there is none on the PATH: {install}")
