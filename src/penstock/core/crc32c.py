"""CRC-32C as Kafka uses it, in hardware where the CPU has it.

The package `crc32c` reads its own version from its metadata, for which it imports a mail parser and a zip reader: a
twentieth of a broker's start. So its compiled module is loaded alone, where it lies where it always lay.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _loaded() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    compiled = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        return import_module("crc32c").crc32c  # type: ignore[no-any-return]
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c = _loaded()

__all__ = ["crc32c"]
