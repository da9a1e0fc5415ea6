"""`python -m headgate_pipeline`: the same as `headgate pipeline`, where only this package is installed."""

from headgate_pipeline.cli import app

app(prog_name="headgate pipeline")
