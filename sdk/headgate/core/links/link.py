"""A policy has links: which destination forwards to which, here or at another site."""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, unquote

from headgate.core.addresses.pattern import WILDCARDS, Pattern
from headgate.core.durability import Durability

Kind = Literal["bridge", "route"]
_SITE_VARIABLE: Final = re.compile(r"HEADGATE_SITE_[A-Za-z0-9_]+\Z")


def is_site_variable(name: str) -> bool:
    """Return whether a policy may name an environment variable: it is set for the URL of a site and nothing else."""
    return _SITE_VARIABLE.match(name) is not None


@dataclass(frozen=True, slots=True)
class Site:
    """A site is another deployment that links lead to.

    Attributes:
        name: as it is called by all sites.
        url: of its Redis; ``env:HEADGATE_SITE_NAME`` and ``file:name`` say where each node finds the URL. It holds no
            password.
        namespace: of its destinations; None for the same as here.
    """

    name: str
    url: str
    namespace: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as the compiled policy keeps it."""
        return {"name": self.name, "url": self.url} | ({"namespace": self.namespace} if self.namespace else {})

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "Site":
        """Return the inverse of :meth:`as_dict`; KeyError where it lacks something."""
        return cls(entry["name"], entry["url"], entry.get("namespace"))


class LinkNameParts(NamedTuple):
    """A link's name is made of these parts.

    Attributes:
        source: name of the destination that it takes from.
        target: of the one that it puts to.
        here: name of the site of the source; empty where the link stays within a site.
        site: of the target, likewise.
        copies: whether it leaves each message to the consumers of its source too, where that is a queue.
    """

    source: str
    target: str
    here: str = ""
    site: str = ""
    copies: bool = False

    @property
    def where(self) -> str:
        """The target as people read it."""
        return spelled(self.target, self.site)


STORES: Final = ("queue", "topic")
"""Kinds of destination that may be an end of a link: those that store messages."""


def spelled(target: str, site: str = "") -> str:
    """Return a target as people read it: with its site where that is another one."""
    return f"{site}:{target}" if site else target


def known_by(source: str, target: str, here: str = "", site: str = "", *, copies: bool = False) -> str:
    """Return what a link is known by, the name of its lease; :func:`ends_of` reads it."""
    source, target, arrow = quote(source, safe=""), quote(target, safe=""), ">>" if copies else ">"
    return f"{here}:{source}{arrow}{site}:{target}" if site else f"{source}{arrow}{target}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link leads from one destination to another. A policy's table with several targets or topics is several links.

    Attributes:
        name: as the policy calls the table that it comes from.
        source: where messages are taken from; of a route by pattern, the pattern.
        target: where they go.
        max_hops: places that a message may come through, the source included; None where unset.
        dead_letters: where copies go of what can never be delivered, at the source's site; None stops the link there.
        origin: where it was written: ``<file>:<line>``.
        kind: of the table.
        here: name of this site; empty where it has none.
        site: where the target is; None for here.
        zone: of a route where messages make one hop only; empty where they may go on.
        selector: which messages, by their headers; empty for all.
        rate: messages a second of all links of the table together; None for any.
        byte_rate: the same in bytes.
        replicas: of the target that must have a message before the source lets go of it.
        fsync: whether the disk of the target must.
        copies: whether it leaves each message to the consumers of its source too, where that is a queue.
    """

    name: str
    source: str
    target: str
    max_hops: int | None = None
    dead_letters: str | None = None
    origin: str = ""
    kind: Kind = "bridge"
    here: str = ""
    site: Site | None = None
    zone: str = ""
    selector: str = ""
    rate: float | None = None
    byte_rate: float | None = None
    replicas: int = 0
    fsync: bool = False
    copies: bool = False

    @property
    def durability(self) -> Durability:
        """Where a message must be before the source lets go of it."""
        return Durability(self.replicas, self.fsync)

    @property
    def link(self) -> str:
        """The name of its lease, and the name that it is known by: a bridge or route that is renamed is the same link.

        >>> Link("to billing", "orders", "billing").link
        'orders>billing'
        >>> Link("to berlin", "news", "news", here="paris", site=Site("berlin", "env:BERLIN")).link
        'paris:news>berlin:news'
        >>> Link("copies to audit", "orders", "audit", copies=True).link
        'orders>>audit'
        """
        site = self.site.name if self.site else ""
        return known_by(self.source, self.target, self.here, site, copies=self.copies)

    @property
    def where(self) -> str:
        """The target as people read it: with its site where that is another one."""
        return spelled(self.target, self.site.name if self.site else "")

    @property
    def pattern(self) -> Pattern | None:
        """Of a route by pattern: it stands for one link of each topic that the pattern matches."""
        return Pattern.parse(self.source) if any(one in self.source for one in WILDCARDS) else None

    def of(self, topic: str) -> "Link":
        """Return the link of one topic, of a route by pattern.

        >>> Link("to berlin", "news.>", "news.>", here="paris", site=Site("berlin", "env:BERLIN")).of("news.eu").link
        'paris:news.eu>berlin:news.eu'
        """
        return replace(self, source=topic, target=topic)

    def kinds_there(self, kind: str) -> tuple[str, ...]:
        """Return the kinds that its target may be, the one to make it first, given the kind of its source.

        A route leads to the same destination at another site, so that is of the same kind.

        >>> Link("to berlin", "news", "news", kind="route").kinds_there("topic")
        ('topic',)
        """
        return (kind,) if self.kind == "route" else STORES

    def place(self, namespace: str, encoded: str) -> str:
        """Return what a destination of this site is called in the path of a message."""
        return f"{self.here}:{namespace}/{encoded}" if self.here else f"{namespace}/{encoded}"

    def place_there(self, namespace: str, encoded: str) -> str:
        """Return what a destination of the target's site is called there."""
        return f"{self.site.name}:{namespace}/{encoded}" if self.site else self.place(namespace, encoded)

    def as_dict(self) -> dict[str, Any]:
        """Return it as the compiled policy keeps it: without what is as it is by default."""
        entry = {"kind": self.kind, "name": self.name, "from": self.source, "to": self.target, "origin": self.origin}
        more = {key: getattr(self, key) for key, default in _DEFAULTS.items() if getattr(self, key) != default}
        return entry | more | ({"site": self.site.as_dict()} if self.site else {})

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> "Link":
        """Return the inverse of :meth:`as_dict`; KeyError where it lacks something."""
        more = {key: entry[key] for key in _DEFAULTS if key in entry}
        site = Site.from_dict(entry["site"]) if "site" in entry else None
        return cls(
            entry["name"],
            entry["from"],
            entry["to"],
            origin=entry["origin"],
            kind=entry.get("kind", "bridge"),
            site=site,
            **more,
        )


_DEFAULTS: Final[dict[str, Any]] = {
    one.name: one.default
    for one in fields(Link)
    if one.default is not MISSING and one.name not in ("kind", "origin", "site")
}


def rate_bucket(kind: str, name: str, unit: Literal["messages", "bytes"]) -> str:
    """Return the name of the bucket that holds the rate of all links of a table together.

    >>> rate_bucket("route", "to berlin", "bytes")
    'route to berlin: bytes/s'
    """
    return f"{kind} {name}: {unit}/s"


def burst_of(rate: float) -> int:
    """Return how many tokens of such a bucket may be used at once: a tenth of a second's, at least one."""
    return max(1, round(rate / 10))


@functools.lru_cache(maxsize=32768)  # more than a policy has room for
def ends_of(link: str) -> LinkNameParts:
    """Return source and target of a :attr:`Link.link`.

    >>> ends_of("orders>billing")
    Ends(source='orders', target='billing', here='', site='', copies=False)
    >>> ends_of("paris:news>>berlin:news").site
    'berlin'
    """
    source, _, target = link.partition(">")
    copies, target = target.startswith(">"), target.removeprefix(">")
    here, _, source = source.rpartition(":")
    site, _, target = target.rpartition(":")
    return LinkNameParts(unquote(source), unquote(target), here, site, copies)


def cycle(links: Iterable[Link]) -> tuple[Link, ...]:
    """Return links of this site that lead from a destination back to it, none of which limits the hops; else nothing.

    >>> [one.target for one in cycle([Link("there", "a", "b"), Link("back", "b", "a")])]
    ['b', 'a']
    """
    onward: dict[str, list[Link]] = {}
    for one in links:
        if one.max_hops is None and one.site is None:
            onward.setdefault(one.source, []).append(one)
    done: set[str] = set()
    for start, first in onward.items():
        if start in done:
            continue
        path: list[Link] = []
        passed = {start: 0}  # and how many links lead there
        ways: list[Iterator[Link]] = [iter(first)]
        while ways:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                left = path.pop().target if path else start
                done.add(left)
                passed.pop(left, None)
                continue
            if step.target in passed:
                return (*path[passed[step.target] :], step)
            if step.target not in done:
                path.append(step)
                passed[step.target] = len(path)
                ways.append(iter(onward.get(step.target, ())))
    return ()
