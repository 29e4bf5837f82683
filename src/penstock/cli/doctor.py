"""`penstock doctor`: what is wrong with this machine, this directory and these ports, and what to do."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import FAILED
from penstock.cli.output import print_json

_EXAMPLES = (
    "penstock doctor",
    "penstock doctor --data-dir /var/lib/penstock --port 9092 --console-port 9080",
    "penstock doctor --json",
)


def register(app: typer.Typer) -> None:
    command(app, "doctor", examples=_EXAMPLES)(doctor)


def doctor(
    session: Session,
    data_dir: Annotated[Path, typer.Option(help="The broker's data directory.")] = Path("data"),
    host: Annotated[
        str | None, typer.Option(help="Where the broker listens, or will (default: as --bootstrap says).")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Its port for Kafka clients (default: as --bootstrap says)."),
    ] = None,
    console_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Its port of /metrics and /healthz.")
    ] = 9080,
) -> None:
    """Check ports, disk, data directory, limits, clock and libraries, and say what to do about each.

    Changes nothing; a running broker is not disturbed. The exit code is 1 when something would not work.
    """
    from penstock.cli.findings import print_findings
    from penstock.client.connect import addresses
    from penstock.diagnosis.archive import archive_findings
    from penstock.diagnosis.data_dir import data_findings
    from penstock.diagnosis.findings import Level
    from penstock.diagnosis.ports import console_port as check_console_port
    from penstock.diagnosis.ports import kafka_port
    from penstock.diagnosis.system import system_findings

    named = addresses(session.bootstrap)[0]
    host, port = host or named[0], port or named[1]
    findings = [kafka_port(host, port), check_console_port(host, console_port)]
    findings += archive_findings(host, console_port)
    findings += data_findings(data_dir)
    findings += system_findings()
    counts = {level: sum(1 for finding in findings if finding.level is level) for level in Level}
    if session.json:
        print_json({"ok": not counts[Level.FAIL], "findings": [finding.as_json() for finding in findings]})
    else:
        print_findings(findings)
        if not counts[Level.FAIL] and not counts[Level.WARN]:
            print("all is well")
        else:
            print(f"{counts[Level.FAIL]} to mend, {counts[Level.WARN]} to think about")
    if counts[Level.FAIL]:
        raise typer.Exit(FAILED)
