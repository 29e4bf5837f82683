"""`penstock pipeline run`: the user's own PySpark job."""

import signal
from typing import Annotated

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import WrongUseError
from penstock.cli.options import parse_pairs
from penstock.cli.pipeline.spark_user import SparkUser

_SPARK = "Spark"


def register(app: typer.Typer) -> None:
    command(
        app,
        "run",
        examples=(
            "penstock pipeline run job.py",
            "penstock pipeline run --master spark://host:7077 job.py --day 2025-01-31",
        ),
        # What follows the file is the job's, as it is with `python FILE`.
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    )(run)


def run(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE.py", help="The job.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments, as sys.argv[1:].")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Where Spark runs.", rich_help_panel=_SPARK)
    ] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="NAME=VALUE",
            help="A setting of Spark; may be repeated.",
            rich_help_panel=_SPARK,
        ),
    ] = None,
) -> None:
    """Run your own PySpark job: `spark` is a session with the source, `bootstrap` the broker's address.

    Options of this command come before FILE.py; what follows it is the job's. Its exit code is passed on. Spark's log
    and what tasks print appear with --debug.
    """
    from penstock.spark.pipelines.run import ScriptError, check_script, run_session
    from penstock.spark.pipelines.run import run as run_script

    config = parse_pairs("--conf", conf)
    try:
        script = check_script(file)
    except ScriptError as error:
        raise WrongUseError(str(error)) from None
    with SparkUser(debug=session.debug) as user:
        spark = run_session(script, master, config)
        user.started()
        # Ctrl-C and SIGTERM are the job's own business, as under plain Python.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            code = run_script(spark, script, arguments or [], bootstrap=session.bootstrap)
        finally:
            spark.stop()
    if code:
        raise typer.Exit(code)
