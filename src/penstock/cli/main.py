"""The `penstock` command. Commands live in modules of their own and import what they need when they run."""

import typer

from penstock.cli import up

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command("up")(up.up)


@app.callback()
def _root() -> None:
    """Penstock: one log for Kafka clients, RabbitMQ clients and Spark."""


def main() -> None:
    app()


if __name__ == "__main__":
    main()
