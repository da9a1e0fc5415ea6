"""`headgate pipeline`: the jobs, on this machine by default. Spark is loaded by the job alone, not by `--help`."""

import typer

app = typer.Typer(no_args_is_help=True, help="Read the ledger with Spark: ingest, measure, audit, recommend, report.")
