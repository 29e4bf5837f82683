"""The checksum of a batch, without what its package imports for its own version."""

import subprocess
import sys
from importlib.machinery import PathFinder
from typing import Any

import pytest

from penstock.core import crc32c as module


def test_it_is_castagnoli() -> None:
    assert module.crc32c(b"123456789") == 0xE3069283


def test_it_takes_no_reader_of_metadata_to_load_it() -> None:
    names = "import penstock.core.crc32c, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", names], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "penstock.core.crc32c" in loaded
    assert "importlib.metadata" not in loaded


def test_where_it_lies_elsewhere_the_package_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec

    def elsewhere(name: str, *rest: Any) -> Any:
        return None if name == "_crc32c" else find(name, *rest)

    monkeypatch.setattr(PathFinder, "find_spec", elsewhere)
    of_package = module._loaded()
    assert of_package is not module.crc32c
    assert of_package(b"123456789") == 0xE3069283
