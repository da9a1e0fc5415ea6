"""A waiter has a band: 0 goes first, 7 last; by default it is 3, as an ``urgency`` of RFC 9218 is."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headgate.core.limits.limiter_forms import named_among, unless, weights_text
from headgate.core.spellings import FLAG, ValueForm
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


def terms_text(band: int | None, *, fail_if_late: bool = False) -> str:
    """Return what stands behind amounts as the script takes them; nothing where no band is named.

    >>> terms_text(6), terms_text(None), terms_text(None, fail_if_late=True)
    ('~6', '', '!')
    """
    return ("" if band is None else f"~{band}") + ("!" if fail_if_late else "")


@lru_cache(maxsize=1 << 14)
def asked_band(bands: str, key: str, band: int | None) -> int:
    """Return the band of an encoded key's call that names this one, or none, as ``lua/lib/bands.lua`` finds it.

    >>> asked_band("batch-*=6", "batch-7", None), asked_band("batch-*=6", "batch-7", 0), asked_band("vip=0", "vip", 5)
    (6, 6, 5)
    """
    best = named_among(bands, key)
    if best is None:
        return USUAL_BAND if band is None else band
    return best if band is None else max(band, best)


def _bands(value: Any, what: str) -> str:
    return weights_text(value, what, 0, BANDS - 1)


def _aging(value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_AGING <= value <= MOST_AGING:
        raise InvalidValue(f"{value!r}; use {LEAST_AGING:g} to {MOST_AGING:g}", setting=what)
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _shares(value: Any, what: str) -> str:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"{value!r}; write a table of bands and shares, such as {{'6' = 0.8}}", setting=what)
    found = {}
    for band, share in value.items():
        if not (str(band).isdigit() and 0 <= int(band) < BANDS):
            raise InvalidValue(f"{band!r} is not a band; use 0 (first) to {BANDS - 1} (last)", setting=what)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise InvalidValue(f"{band} = {share!r}; use a share above 0 and below 1, such as 0.8", setting=what)
        found[int(band)] = max(1, round(share * 1000))
    return ";".join(f"{band}={share}" for band, share in sorted(found.items()))


KEY_BANDS: Final = ValueForm(_bands, "Bands")
AGING: Final = ValueForm(_aging, "Aging")
SHARES: Final = ValueForm(_shares, "BandShares")
ORDER: Final = unless("turn", "deadline")
FAIL_IF_LATE: Final = FLAG
