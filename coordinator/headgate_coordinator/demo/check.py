"""Each line of the demo's verdict is a check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """A check names one thing that must hold, whether it does, and a sentence that says so with its numbers."""

    name: str
    passed: bool
    sentence: str
