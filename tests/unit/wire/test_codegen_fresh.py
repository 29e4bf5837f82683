"""The committed codecs are what the generator makes of kio's schema today."""

from pathlib import Path

from tools.codegen.generate import TARGET, generate

ROOT = Path(__file__).parents[3]


def test_committed_codecs_are_what_the_generator_makes() -> None:
    committed = {path.name: path.read_text() for path in (ROOT / TARGET).glob("*.py")}
    committed.pop("__init__.py")
    generated = generate()
    assert committed.keys() == generated.keys()
    stale = [name for name, source in generated.items() if committed[name] != source]
    assert stale == [], "run `make codegen` and commit its output"
