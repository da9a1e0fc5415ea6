"""The demo takes these options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate import InvalidValue
from headgate.units import parse_size
from headgate_coordinator.demo.corpus import MIN_LIMIT, find_files, standard_library
from headgate_coordinator.operate.terminal import size

MIN_SECONDS: Final = 5.0
MAX_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Options:
    """The demo takes these options; ``url`` None: on a private Redis; ``report`` is for the page about it."""

    seconds: float
    limit: int
    source: Path
    url: str | None
    pipeline: bool = True
    report: Path | None = None

    @classmethod
    def of(
        cls,
        *,
        seconds: float,
        limit: str,
        source: Path | None,
        url: str | None,
        pipeline: bool = True,
        report: Path | None = None,
    ) -> "Options":
        """Return checked options.

        Raises:
            InvalidValue: one of them cannot be used.
        """
        in_bytes = parse_size(limit, "limit")
        if in_bytes < MIN_LIMIT:
            raise InvalidValue(f"limit: {limit!r} is too small to show anything; use {size(MIN_LIMIT)} or more")
        chosen = (source or standard_library()).absolute()
        find_files(chosen)
        if report is not None and not report.absolute().parent.is_dir():
            raise InvalidValue(f"--report: there is no folder {str(report.parent)!r}; make it, or name another")
        return cls(seconds, in_bytes, chosen, url or None, pipeline, report)
