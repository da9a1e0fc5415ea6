"""Bridges and routes of a document: the links that they are, and what would make them forward nonsense."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from headgate.core.durability import MEMORY, Durability
from headgate.core.links.link import Kind, Link, Site, burst_of, cycle, rate_bucket
from headgate.core.policy import Policy, Rule
from headgate.policy.document import Document
from headgate.policy.line_numbers import Path
from headgate.policy.link_tables import BridgeTable, LinkTable, RouteTable
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.settings import DEFAULT, Settings
from headgate.units import parse_rate

MOST_NAME: Final = 200
"""Bytes of a table's name: the bucket of its rate is named after it."""


@dataclass
class LinkCompiler:
    """The links of a document, as they are compiled.

    Attributes:
        links: one for each pair of ends.
        rules: that follow: the kinds of routed destinations, queues that no limit holds, and rates.
        sites: where links may lead.
    """

    document: Document
    source: Source
    at: Origin
    problems: list[Problem]
    links: list[Link] = field(default_factory=list)
    _made: dict[str, Link] = field(default_factory=dict, repr=False)
    rules: list[Rule] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)

    def compile(self) -> "LinkCompiler":
        """Compile all tables; what is wrong is added to the problems."""
        self._sites()
        names: set[tuple[str, str]] = set()
        for position, table in (*enumerate(self.document.bridge), *enumerate(self.document.route)):
            kind = "bridge" if isinstance(table, BridgeTable) else "route"
            path: Path = (kind, position)
            if (kind, table.name) in names:
                self._problem((*path, "name"), f"there is a {kind} {table.name!r} already; keep one")
            elif len(table.name.encode()) > MOST_NAME:
                self._problem((*path, "name"), f"a name of more than {MOST_NAME} bytes; shorten it")
            names.add((kind, table.name))
            if isinstance(table, BridgeTable):
                self._bridge(table, path)
            elif isinstance(table, RouteTable):
                self._route(table, path)
        return self

    def _problem(self, path: Path, text: str) -> None:
        self.problems.append(self.source.problem(path, text))

    def _sites(self) -> None:
        for position, table in enumerate(self.document.site):
            path: Path = ("site", position)
            if table.name in self.sites:
                self._problem((*path, "name"), f"there is a site {table.name!r} already; keep one")
            elif table.name == self.document.site_name:
                self._problem((*path, "name"), f"{table.name!r} is the name of this site itself; [[site]] is another")
            self.sites[table.name] = Site(table.name, table.url, table.namespace)

    def site(self, name: str, path: Path) -> Site | None:
        """Return the site of that name; where there is none, or this one has no name, that is a problem."""
        if self.document.site_name is None:
            self._problem(path, "this site has no name that others know it by; write site_name = 'paris' at the top")
        if name not in self.sites:
            close = get_close_matches(name, self.sites, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"write [[site]] name = {name!r} with its url"
            self._problem(path, f"there is no site {name!r}; {hint}")
        return self.sites.get(name)

    def _bridge(self, table: BridgeTable, path: Path) -> None:
        site = self.site(table.site, (*path, "site")) if table.site else None
        for target in table.to if isinstance(table.to, list) else [table.to]:
            if target == table.source and site is None:
                text = f"bridge {table.name!r} would forward {target!r} to itself; name another destination"
                self._problem((*path, "to"), text)
            self._add("bridge", table, table.source, target, site, "", (*path, "to"))
        self._rates("bridge", table, path)

    def _route(self, table: RouteTable, path: Path) -> None:
        site = self.site(table.to, (*path, "to"))
        hops = {zone.name: zone.hops for zone in self.document.zone}
        if table.zone and table.zone not in hops:
            text = f"there is no zone {table.zone!r}; write [[zone]] name = {table.zone!r}, hops = 'one' or 'many'"
            self._problem((*path, "zone"), text)
        zone = table.zone if hops.get(table.zone or "") == "one" else ""
        for key, kind, names in (("topics", "topic", table.topics), ("queues", "queue", table.queues)):
            fields = {} if kind == "topic" else {"enforce": "off"}
            for name in names if isinstance(names, list) else [names] if names else []:
                self._add("route", table, name, name, site, zone, (*path, key))
                if self.links[-1].pattern is not None:
                    continue  # it is of the topics that there are, and makes none
                self.rules.append(Rule(name, kind, fields, dict.fromkeys([*fields, "kind"], self.at((*path, key)))))
        self._rates("route", table, path)

    def _add(
        self, kind: Kind, table: LinkTable, source: str, target: str, site: Site | None, zone: str, path: Path
    ) -> None:
        given = table.durability if table.durability not in (None, DEFAULT) else MEMORY.text
        durability = Durability.parse(given) | Durability(table.replicas)
        made = Link(
            table.name, source, target, table.max_hops, table.dead_letters, self.at(path[:-1]), kind,
            here=self.document.site_name or "", site=site, zone=zone, selector=table.selector or "",
            rate=_rate(table.rate, "rate"), byte_rate=_rate(table.byte_rate, "byte_rate"), replicas=durability.replicas,
            fsync=durability.fsync, copies=isinstance(table, BridgeTable) and table.copies,
        )  # fmt: skip
        if other := self._made.get(made.link):
            text = f"{other.kind} {other.name!r} forwards {source!r} to {made.where!r} already; keep one"
            self._problem(path, text)
        elif table.dead_letters == source or (table.dead_letters == target and site is None):
            text = f"{table.dead_letters!r} is an end of {kind} {table.name!r} itself; name another destination"
            self._problem((*path[:-1], "dead_letters"), text)
        self._made.setdefault(made.link, made)
        self.links.append(made)

    def _rates(self, kind: Kind, table: LinkTable, path: Path) -> None:
        """Make buckets, which the nodes share, of rates."""
        for key, text in (("rate", table.rate), ("byte_rate", table.byte_rate)):
            if (rate := _rate(text, key)) is not None:
                settings = Settings(rate=rate, burst=burst_of(rate)).fields()
                settings.pop("kind", None)
                name = rate_bucket(kind, table.name, "messages" if key == "rate" else "bytes")
                self.rules.append(
                    Rule(name, "bucket", settings, dict.fromkeys([*settings, "kind"], self.at((*path, key))))
                )


def _rate(rate: Any, key: str) -> float | None:
    return None if rate is None else float(parse_rate(rate, key))


def check_links(policy: Policy) -> Iterator[Problem]:
    """Yield what is wrong with the links of a compiled policy, given what its rules say."""
    if circle := cycle(policy.links):
        way = " -> ".join([circle[0].source, *(link.target for link in circle)])
        names = ", ".join(repr(name) for name in dict.fromkeys(link.name for link in circle))
        yield Problem(
            circle[-1].origin,
            "bridge",
            f"the bridges {names} go in a circle: {way}; take one away, or give one of them max_hops = {len(circle)}",
        )
    for link in policy.links:
        here = (("from", link.source), ("to", link.target if link.site is None else None))
        for key, name in (*here, ("dead_letters", link.dead_letters)):
            kind = policy.resolve(name).kind if name is not None else None
            if kind in ("gate", "bucket", "limiter"):
                yield Problem(
                    link.origin,
                    f"{link.kind}.{key}",
                    f"{name!r} is a {kind}, which holds no messages; name a queue or a topic",
                )
    for source, links in _by_source(policy).items():
        moving = [link for link in links if not link.copies]
        if len(links) > 1 and moving and policy.resolve(source).kind not in ("topic", "gate", "bucket", "limiter"):
            which = ", ".join(f"{link.kind} {link.name!r}" for link in moving)
            yield Problem(
                links[1].origin,
                f"{links[1].kind}.from",
                f"{source!r} has {len(links)} targets, and of a queue each would get a part, for its messages move "
                f"over {which}; write copies = true in each of its [[bridge]] tables, or keep one target",
            )


def _by_source(policy: Policy) -> dict[str, list[Link]]:
    found: dict[str, list[Link]] = {}
    for link in policy.links:
        if link.pattern is not None:
            continue  # of topics, so each target gets all
        found.setdefault(link.source, []).append(link)
    return found
