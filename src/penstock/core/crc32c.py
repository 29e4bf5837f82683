"""CRC-32C as Kafka uses it, in hardware where the CPU has it.

The package `crc32c` reads its own version from its metadata, for which it imports a mail parser and a zip reader: a
twentieth of a broker's start. So its compiled module is loaded alone, where it lies where it always lay.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any


def _compiled() -> Callable[[Any, int], int] | None:
    package = PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if not (found and found.loader):
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, "crc32c", None)


crc32c = _compiled()
if crc32c is None:
    from crc32c import crc32c

__all__ = ["crc32c"]
