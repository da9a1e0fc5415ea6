"""Names and patterns of others, as far as destinations and rules can have them."""

import re

from headgate.core.addresses.pattern import Pattern
from headgate.core.names import encode_name
from headgate.errors import InvalidName, PolicyError


def is_name(text: str) -> bool:
    """Return whether a destination can have this name, and a rule can be for it alone."""
    try:
        encode_name(text)
        Pattern.parse(text)
    except (InvalidName, PolicyError):
        return False
    return True


def is_exact(pattern: str) -> bool:
    """Return whether this is a pattern that matches one name only."""
    try:
        return Pattern.parse(pattern).exact
    except PolicyError:
        return False


def example_of(pattern: str) -> str:
    """Return a name that a pattern matches."""
    return re.sub("[*#>]", "x", pattern)


def check_pattern(text: str) -> None:
    """See that a rule can have this pattern.

    Raises:
        PolicyError, InvalidName: it cannot.
    """
    if "${" in text:
        raise PolicyError("a property stands in it, which is put in as the broker starts; write its value there")
    Pattern.parse(text)
    encode_name(example_of(text))
