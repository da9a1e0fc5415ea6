"""The command `headgate` is made of one file for each group of commands, and of the options that they share."""

from headgate_coordinator.cli.entry import main

__all__ = ["main"]
