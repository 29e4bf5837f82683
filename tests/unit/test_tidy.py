"""Sizes ratchet down, never up: what is long today is listed here with its length, and may only get shorter."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
GENERATED = ROOT / "src/penstock/wire/kafka/generated"

# Longer than the rule when it was made; lower the number when you shorten one, delete the row when it fits.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    # `make clients` installs others' code below its own folder.
    others = {"node_modules", ".venv"}
    return [path for path in found if GENERATED not in path.parents and not others & set(path.parts)]


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those in it, at any depth; expressions hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        if not isinstance(child, ast.expr):
            yield from functions(child)


def too_long(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    text = path.read_text()
    lines = text.count("\n")
    if lines > LONG_FILES.get(name, FILE_LINES_MAX):
        yield f"{name} has {lines} lines: split it by what changes together"
    if lines <= FUNCTION_LINES_MAX:
        return
    for node in functions(ast.parse(text)):
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        key = f"{name}:{node.name}"
        if length > LONG_FUNCTIONS.get(key, FUNCTION_LINES_MAX):
            yield f"{key} has {length} lines"


@pytest.mark.parametrize("folder", ["src", "tools", "benchmarks", "tests"])
def test_files_stay_readable(folder: str) -> None:
    found = sources(folder)
    assert found
    assert [problem for path in found for problem in too_long(path)] == []


def test_the_files_that_docs_name_are_there() -> None:
    """By their whole path below the package: a newcomer follows the walks of the architecture."""
    for page in ("docs/architecture.md", "docs/requirements.md", "docs/invariants.md"):
        named = re.findall(r"`((?:src/penstock/|tests/)?[a-z_]+/[a-z_0-9/]+\.py)", (ROOT / page).read_text())
        assert named
        missing = {
            name
            for name in named
            if not (ROOT / name).exists() and not (ROOT / "src/penstock" / name).exists()
        }
        assert missing == set(), page
