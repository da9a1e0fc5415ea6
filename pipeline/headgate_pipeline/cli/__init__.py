"""Implements `headgate pipeline`: one file a command, and the options they share."""

from headgate_pipeline.cli.main import app

__all__ = ["app"]
