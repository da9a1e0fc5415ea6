"""Writes the logs of Headgate's programs: a record is a line, whatever the text of a client in it is."""

import logging
from typing import Final

from headgate.core.printable import printable

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MOST: Final = 4000
"""Characters of a line."""


class OneLine(logging.Formatter):
    """`OneLine` makes one line of a record; the lines of a traceback follow it, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name that it overrides
        """Return the line."""
        return printable(super().formatMessage(record), MOST)

    def formatException(self, ei: object) -> str:  # noqa: N802 -- as above
        """Return the traceback."""
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"  {printable(line, MOST)}" for line in lines)


def begin_logging() -> None:
    """Log to stderr, from INFO on."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
