"""Text of others, as it may be logged: on one line, without what a terminal obeys, and not too much of it."""

from typing import Final

MOST: Final = 300
"""Characters of it that are shown, unless more or fewer are asked for."""


def printable(text: str, most: int = MOST) -> str:
    """Return the text cut to ``most`` characters, with escapes for what cannot be printed."""
    if len(text) > most:
        text = f"{text[:most]}..."
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
