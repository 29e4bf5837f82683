"""`penstock up`: one node, embedded coordination, everything on."""

from pathlib import Path
from typing import Annotated

import typer


def up(
    data_dir: Annotated[Path, typer.Option(help="Where messages and metadata are kept.")] = Path("data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port for Kafka clients; 0 picks a free one.")] = 9092,
    console_port: Annotated[int, typer.Option(help="Port for /metrics and /healthz; 0 picks a free one.")] = 9080,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting, as name=value.")] = None,
) -> None:
    """Run a broker on this machine until Ctrl-C."""
    from penstock.config.broker import BrokerConfig
    from penstock.server.run import run

    given = dict(item.split("=", 1) for item in set_ or [])
    given["log.dirs"] = str(data_dir)
    config = BrokerConfig.resolve(given)
    run(config, host, port, lambda broker: print(f"penstock listens on {host}:{broker.port}", flush=True))
