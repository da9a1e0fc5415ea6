"""`headgate pipeline`: the jobs, on this machine by default. Spark is loaded by the job alone, not by `--help`."""

import typer

from headgate_pipeline import cli_audit, cli_ingest, cli_measure

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a password
    help="Read the ledger with Spark: ingest, measure, audit, recommend, report.",
)
app.command()(cli_ingest.ingest)
app.command()(cli_audit.audit)
app.command()(cli_measure.measure)


@app.callback()
def pipeline() -> None:
    """Read the ledger with Spark: ingest, measure, audit, recommend, report."""
