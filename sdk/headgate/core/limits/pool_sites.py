"""A pool has sites with parts of it: fields of its state name them, as `lua/lib/sites.lua` reads these."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_SITE: Final = re.compile(r"([a-z0-9-]+)=([0-9]+)\*?([0-9]*)")
_LEAST: Final = re.compile(r"([a-z0-9-]+)=([0-9]+)")


class Terms(NamedTuple):
    """A site has these terms with a pool.

    Attributes:
        most: bytes that it may have.
        least: bytes that nobody else gets, whether it uses them or not.
        weight: its share beside others that wait.
    """

    most: int
    least: int
    weight: int


def sites_named(fields: Mapping[str, str]) -> dict[str, Terms]:
    """Return the sites that the fields of a pool's state name."""
    leasts = dict(_LEAST.findall(fields.get("leasts", "")))
    return {
        site: Terms(int(most), min(int(most), int(leasts.get(site, 0))), int(weight or 1))
        for site, most, weight in _SITE.findall(fields.get("sites", ""))
    }


def why_no_room(fields: Mapping[str, str], limit: int, reserve: int) -> str:
    """Return why a pool cannot keep its sites their leasts; an empty text where it can."""
    sites = sites_named(fields)
    least = sum(terms.least for terms in sites.values())
    if least and least + reserve > limit:
        beside = f" and its reserve of {reserve}" if reserve else ""
        return f"the leasts of its sites, {least} bytes together,{beside} are above its limit of {limit} bytes"
    for site, terms in sites.items():
        if least and limit - reserve - (least - terms.least) <= 0:
            return f"the leasts of other sites leave nothing of its limit of {limit} bytes to site {site}"
    return ""
