"""`penstock pipeline …`: data pipelines on Apache Spark, each command in a module of its own.

The modules import PySpark when they run, not when they register: `penstock --help` stays fast.
"""

from importlib import import_module

import typer

# `penstock.cli.pipeline.<name>`, each with a `register(app)` as any command has.
_COMMANDS: tuple[str, ...] = ("archive", "replay", "sql", "run", "status")


def register(app: typer.Typer) -> None:
    pipelines = typer.Typer(no_args_is_help=True)
    app.add_typer(pipelines, name="pipeline", help="Data pipelines on Apache Spark: archive, replay, query.")
    for name in _COMMANDS:
        import_module(f"penstock.cli.pipeline.{name}").register(pipelines)
