"""One line of the demo's verdict."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, whether it does, and a sentence that says so with its numbers."""

    name: str
    passed: bool
    sentence: str
