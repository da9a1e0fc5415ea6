"""Bands of those who wait: 0 goes first, 7 last; whoever names none has 3, as an ``urgency`` of RFC 9218 does."""

from typing import Any, Final

from headgate.core.limits.forms import weights_text
from headgate.core.spellings import Form
from headgate.errors import InvalidValue

BANDS: Final = 8
USUAL_BAND: Final = 3
MOST_AGING: Final = 10_000.0
LEAST_AGING: Final = 0.001


def check_band(band: int | None) -> None:
    """See that a band is one.

    Raises:
        InvalidValue: not a whole number from 0 to 7.
    """
    if band is not None and (type(band) is not int or not 0 <= band < BANDS):
        raise InvalidValue(f"{band!r:.80}; use 0 (first) to {BANDS - 1} (last)", setting="band")


def terms_text(band: int | None) -> str:
    """Return what stands behind amounts as the script takes them; nothing where no band is named.

    >>> terms_text(6), terms_text(None)
    ('~6', '')
    """
    return "" if band is None else f"~{band}"


def _bands(value: Any, what: str) -> str:
    return weights_text(value, what, 0, BANDS - 1)


def _aging(value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_AGING <= value <= MOST_AGING:
        raise InvalidValue(f"{value!r}; use {LEAST_AGING:g} to {MOST_AGING:g}", setting=what)
    return f"{value:.3f}".rstrip("0").rstrip(".")


KEY_BANDS: Final = Form(_bands, "Bands")
AGING: Final = Form(_aging, "Aging")
