"""`headgate pipeline`: the jobs, on this machine by default. Spark is loaded by the job alone, not by `--help`."""

import typer

from headgate_pipeline import cli_recommend, cli_report, cli_what_if

app = typer.Typer(no_args_is_help=True, help="Read the ledger with Spark: ingest, measure, audit, recommend, report.")
app.command()(cli_report.report)
app.command()(cli_recommend.recommend)
app.command()(cli_what_if.what_if)


@app.callback()
def pipeline() -> None:
    """Read the ledger with Spark: ingest, measure, audit, recommend, report."""
