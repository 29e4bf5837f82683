"""Writes the generated codecs into the source tree."""

from pathlib import Path

from penstock.frontends.kafka import served
from penstock.frontends.kafka.apis import served_source
from tools.codegen.generate import TARGET, generate


def main() -> None:
    target = Path(__file__).parents[2] / TARGET
    files = generate()
    for stale in {path.name for path in target.glob("*.py")} - files.keys() - {"__init__.py"}:
        (target / stale).unlink()
    for name, source in files.items():
        (target / name).write_text(source)
    print(f"{len(files)} files in {TARGET}")
    Path(served.__file__).write_text(served_source())


main()
