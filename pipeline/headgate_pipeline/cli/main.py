"""`headgate pipeline` runs the jobs, on this machine by default.

Spark is loaded by the job alone, not by `--help`.
"""

import typer

from headgate_pipeline.cli import audit as cli_audit
from headgate_pipeline.cli import audit_pool as cli_audit_pool
from headgate_pipeline.cli import ingest as cli_ingest
from headgate_pipeline.cli import measure as cli_measure
from headgate_pipeline.cli import recommend as cli_recommend
from headgate_pipeline.cli import report as cli_report
from headgate_pipeline.cli import what_if as cli_what_if

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a password
    help="Read the ledger with Spark: ingest, measure, audit, recommend, report.",
)
app.command()(cli_ingest.ingest)
app.command()(cli_audit.audit)
app.command()(cli_audit_pool.audit_pool)
app.command()(cli_measure.measure)
app.command()(cli_report.report)
app.command()(cli_recommend.recommend)
app.command()(cli_what_if.what_if)


@app.callback()
def pipeline() -> None:
    """Read the ledger with Spark: ingest, measure, audit, recommend, report."""
