"""`headgate pipeline` has one file a command, and the options that these share."""

from headgate_pipeline.cli.main import app

__all__ = ["app"]
