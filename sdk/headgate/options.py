"""Options of clients and sessions are values that are checked where they are made."""

from dataclasses import dataclass, field
from typing import Final, Literal

from headgate.core.addresses.url_options import UrlOptions
from headgate.errors import InvalidValue
from headgate.units import MAX_WEIGHT, MAX_WINDOW, parse_duration, parse_size

OnLoss = Literal["last-lease", "closed"]
DEFAULT_WINDOW: Final = 512 << 10
"""Bytes of credit that a producer or gate keeps in hand."""
DEFAULT_TIMEOUT: Final = 30.0
"""Seconds that a send or an admission waits by default: nothing hangs."""
MIN_TTL: Final = 1.0
MAX_TTL: Final = 3600.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """`SessionOptions` says how a session lives.

    Attributes:
        ttl: seconds after which a session that is not heard of loses what it holds.
        on_loss: without Redis, ``last-lease`` spends what is held until its lease ends, ``closed`` blocks at once.
        idle: seconds after which credit that nobody uses is given back.
        connection: what its connection says for producers and consumers.
        resumes: whether it goes on where an earlier session of the same id ended.
    """

    ttl: float = 10.0
    on_loss: OnLoss = "last-lease"
    idle: float = 2.0
    connection: UrlOptions = field(default_factory=UrlOptions)
    resumes: bool = False

    @classmethod
    def of(cls, ttl: float | str, on_loss: str, connection: UrlOptions) -> "SessionOptions":
        """Return checked options.

        Raises:
            InvalidValue: a TTL outside 1 s to 1 h, or another word for ``on_loss``.
        """
        seconds = parse_duration(ttl, "ttl")
        if not MIN_TTL <= seconds <= MAX_TTL:
            raise InvalidValue(f"{ttl!r}; use 1 s to 1 h", setting="ttl")
        if on_loss not in ("last-lease", "closed"):
            raise InvalidValue(f"{on_loss!r}; use 'last-lease' or 'closed'", setting="on_loss")
        return cls(ttl=seconds, on_loss="closed" if on_loss == "closed" else "last-lease", connection=connection)


def read_window(window: int | str | None) -> int | None:
    """Return the bytes of a producer's or gate's window; None where unset.

    Raises:
        InvalidValue: not a size, 0, or more than 1 TiB.
    """
    size = parse_size(window, "window") if window is not None else None
    if size is not None and size < 1:
        raise InvalidValue("0 sends nothing; use at least 1 byte", setting="window")
    if size is not None and size > MAX_WINDOW:
        raise InvalidValue(f"{window!r} is too large; use 1 to {MAX_WINDOW} bytes", setting="window")
    return size


def read_weight(weight: int | None) -> int | None:
    """Return a weight; None where unset.

    Raises:
        InvalidValue: not a whole number from 1 to 1000.
    """
    whole = isinstance(weight, int) and not isinstance(weight, bool)
    if weight is not None and not (whole and 1 <= weight <= MAX_WEIGHT):
        raise InvalidValue(f"{weight!r}; use a whole number from 1 to {MAX_WEIGHT}", setting="weight")
    return weight
