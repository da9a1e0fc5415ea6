"""Pools of a document, and limits that all matches of a pattern share: each of these is a pool too.

A destination takes part in the shared limit of every pattern that it matches, whatever more specific rules say.
"""

from typing import Any, Final

from headgate.core.limits.pool_sites import why_no_room
from headgate.core.limits.shadow import IN_SHADOW
from headgate.core.names import encode_name, is_slice
from headgate.core.policy import SHARED, Pool
from headgate.policy.document import Destination, Limit, PoolTable, SitePart
from headgate.policy.line_numbers import Path
from headgate.policy.links import LinkCompiler
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.settings import DEFAULT
from headgate.units import parse_limit, parse_size

_WORDS: Final = {"#": "~all", "*": "~any", ">": "~below"}


def pool_of(match: str) -> str:
    """Return the name of the pool that a shared limit of a pattern becomes.

    >>> pool_of("orders.*.#")
    '~orders.~any.~all'
    """
    return "~" + ".".join(_WORDS.get(word, word) for word in match.split("."))


def compile_pools(
    tables: list[PoolTable], links: LinkCompiler, source: Source, at: Origin, problems: list[Problem]
) -> list[Pool]:
    """Return the pools that a document names."""
    pools: dict[str, Pool] = {}
    for position, table in enumerate(tables):
        path: Path = ("pool", position)
        if table.name in pools:
            problems.append(source.problem((*path, "name"), f"there is a pool {table.name!r} already; keep one"))
        if table.name.startswith("~") or any(blank.isspace() for blank in table.name):
            problems.append(
                source.problem(
                    (*path, "name"), f"{table.name!r}: a pool's name has no blanks and does not begin with '~'"
                )
            )
        elif is_slice(table.name):
            problems.append(
                source.problem((*path, "name"), f"{table.name!r} is what slices have for themselves; name another")
            )
        limit = parse_limit(table.limit, "limit") if table.limit is not None else None
        if table.site is not None:
            links.site(table.site, (*path, "site"))
            limit = "unlimited" if limit is None else limit
        sizes = {
            key: parse_size(getattr(table, key)) for key in ("total", "reserve") if getattr(table, key) is not None
        }
        if table.percent is not None and table.total is not None:
            limit = max(1, int(sizes["total"] * table.percent / 100))
        if isinstance(limit, int) and sizes.get("reserve", 0) > limit:
            problems.append(source.problem((*path, "reserve"), f"{table.reserve} is above the whole limit of {limit}"))
        known: dict[str, tuple[Any, str]] = {
            "limit_bytes": (
                limit,
                next((key for key in ("limit", "percent") if getattr(table, key) is not None), "site"),
            ),
            "part_of": (_part_of(table), "site"),
            "sites": (_sites(table, links, (*path, "sites"), source, problems), "sites"),
            "leasts": (_leasts(table, (*path, "sites"), source, problems), "sites"),
            "percent": (None if table.percent is None else f"{table.percent:g}", "percent"),
            "total_bytes": (sizes.get("total"), "total"),
            "reserve_bytes": (sizes.get("reserve"), "reserve"),
        }
        fields = {field: str(value) for field, (value, _) in known.items() if value is not None}
        if isinstance(limit, int) and (why := why_no_room(fields, limit, sizes.get("reserve", 0))):
            problems.append(source.problem((*path, "sites"), why))
        pools[table.name] = Pool(
            table.name,
            fields,
            {field: at((*path, key)) for field, (value, key) in known.items() if value is not None},
        )
    return list(pools.values())


def _part_of(table: PoolTable) -> str | None:
    return None if table.site is None else f"{table.site}/{encode_name(table.pool or table.name, 'pool')}"


def _sites(table: PoolTable, links: LinkCompiler, path: Path, source: Source, problems: list[Problem]) -> str | None:
    parts = []
    for site, part in table.sites.items():
        most, weight = (part.most, part.weight) if isinstance(part, SitePart) else (part, None)
        if most == DEFAULT:
            problems.append(source.problem((*path, site), "a site has no part by default; give it a size"))
        elif site == links.document.site_name:
            problems.append(source.problem((*path, site), f"{site!r} is the name of this site itself; name others"))
        else:
            parts.append(f"{site}={parse_size(most)}" + ("" if weight in (None, 1, DEFAULT) else f"*{weight}"))
    return " ".join(parts) or None


def _leasts(table: PoolTable, path: Path, source: Source, problems: list[Problem]) -> str | None:
    leasts = []
    for site, part in table.sites.items():
        least = part.least if isinstance(part, SitePart) and part.most != DEFAULT else None
        if least in (None, DEFAULT):
            continue
        if parse_size(least) > parse_size(part.most):
            problems.append(source.problem((*path, site, "least"), f"{least} is above its most of {part.most}"))
        leasts.append(f"{site}={parse_size(least)}")
    return " ".join(leasts) or None


class SharedLimitCompiler:
    """The shared limits of a document.

    Attributes:
        problems: what is wrong with them is added here.
        pools: one for each.
    """

    def __init__(self, source: Source, at: Origin, problems: list[Problem]) -> None:
        self.problems = problems
        self.pools: list[Pool] = []
        self._names: set[str] = set()
        self._source = source
        self._at = at

    def limit(self, table: Destination, path: Path, values: dict[str, tuple[Any, Path]]) -> dict[str, str]:
        """Turn the limit of a rule into a pool; returns the field that makes its matches take part."""
        if not isinstance(table.limit, Limit) or table.limit.scope != "shared":
            return {}
        where: Path = (*path, "limit")
        written = values.pop("limit", (None, where))[1]
        if table.limit.messages is not None or not table.limit.bytes or table.limit.bytes == DEFAULT:
            values.pop("limit_messages", None)
            self._wrong(where, "a shared limit counts bytes only; write limit = { bytes = '10MiB', scope = 'shared' }")
            return {}
        for setting in ("resume_at", "resume_at_messages"):
            if setting in values and str(values[setting][0]).strip().endswith("%"):
                self._wrong(values.pop(setting)[1], "a share of what? the limit is shared by all matches; give a size")
        if values.get("enforce", ("",))[0] == IN_SHADOW:
            text = "a shared limit cannot be a shadow limit, for it is a pool; leave out enforce, or the scope"
            self._wrong(values.pop("enforce")[1], text)
        name = pool_of(table.match)
        if name in self._names:
            self._wrong((*where, "scope"), f"{table.match!r} has a shared limit already; keep one")
        self._names.add(name)
        limit = str(parse_limit(table.limit.bytes))
        self.pools.append(Pool(name, {"limit_bytes": limit}, {"limit_bytes": self._at(written)}))
        return {SHARED: encode_name(name)}

    def _wrong(self, path: Path, text: str) -> None:
        self.problems.append(self._source.problem(path, text))
