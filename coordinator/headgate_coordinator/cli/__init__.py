"""The command `headgate`: one file a group of commands, and the options they share."""

from headgate_coordinator.cli.entry import main

__all__ = ["main"]
