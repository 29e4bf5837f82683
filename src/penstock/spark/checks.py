"""What must be there before Spark can run: each lack is one line that says what to install."""

import os
import shutil
from importlib import metadata
from pathlib import Path

from penstock.spark.errors import JavaMissingError, PySparkVersionError

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
            f"PySpark is not installed: pip install 'penstock[spark]' (PySpark {wanted} or newer)"
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
