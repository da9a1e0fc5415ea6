"""`python -m headgate_pipeline` runs `headgate pipeline` where only this package is installed."""

import sys

from headgate import HeadgateError
from headgate_pipeline.cli import app

try:
    app(prog_name="headgate pipeline")
except HeadgateError as error:
    sys.exit(f"headgate: {error}")
