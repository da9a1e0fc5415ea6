"""A compiled policy says which rules are for a destination, and what they add up to.

Rules are merged field by field, and the most specific rule that says something about a field wins; of rules with the
same pattern the later one. Every value keeps its origin: the rule and the line that it came from.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from headgate.core.addresses.index import PatternIndex
from headgate.core.addresses.pattern import Pattern
from headgate.core.limits.descriptor import Descriptor
from headgate.core.limits.slices import SLICED_KINDS
from headgate.core.limits.user_limit import UserLimit
from headgate.core.links.channel import Channel, Feed
from headgate.core.links.link import Link, Site
from headgate.core.settings_table import BUCKET_FIELDS, KEYED_FIELDS, LIMITER_FIELDS, MESSAGE_FIELDS
from headgate.errors import PolicyError

__all__ = ["CACHED", "ORIGIN_BYTES", "SHARED", "Pattern", "Policy", "Pool", "Resolved", "Rule", "Store"]

CACHED: Final = 65536
"""Resolutions that a policy remembers before it starts afresh."""
ORIGIN_BYTES: Final = 2048
"""Most that the text of a destination's origins takes."""

_SPOOLS: Final = ("when_full", "spool")
"""A gate has no messages to spool: a rule for every kind says nothing to it with that."""
SHARED: Final = "shared_pool"
"""Only in rules: the pool that all their matches share, in addition to the ``pools`` that hold for them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule gives settings to the destinations that a pattern matches.

    Attributes:
        match: the pattern.
        kind: the rule is only for destinations of this kind, and new ones get it; None: for every kind.
        fields: settings as the state keeps them; ``resume_bytes`` and ``resume_messages`` may be a percentage of the
            limit that holds at each moment, e.g. ``80.0%``.
        origins: for each field, where it was written: ``<file>:<line>``.

    Raises:
        PolicyError: the pattern means nothing.
    """

    match: str
    kind: str | None
    fields: Mapping[str, str]
    origins: Mapping[str, str]
    pattern: Pattern = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", Pattern.parse(self.match))


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool is a limit that several destinations share, with the origin of each field."""

    name: str
    fields: Mapping[str, str]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Store:
    """A spool store takes payloads for which memory has no room; each of its fields has an origin."""

    name: str
    fields: Mapping[str, str]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A policy has these settings for one destination.

    Attributes:
        kind: the kind that was asked about, or that the rules give; None when neither.
        fields: every field that a policy governs, as the state keeps it; those that no rule sets have their default.
        origins: for each field that a rule sets, ``<rule>@<file>:<line>``.
    """

    kind: str | None
    fields: Mapping[str, str]
    origins: Mapping[str, str]

    @property
    def origin_text(self) -> str:
        """The origins as the field ``policy`` of a destination keeps them; ends in ``...`` where some had no room."""
        return origin_text(self.origins)


def origin_text(origins: Mapping[str, str]) -> str:
    """Return origins of fields as the state keeps them; ends in ``...`` where some had no room."""
    entries = [f"{name}={origin.replace(';', '%3B')}" for name, origin in origins.items()]
    text = ";".join(entries)
    while entries and len(text.encode()) > ORIGIN_BYTES:
        entries.pop()
        text = ";".join([*entries, "..."])
    return text


def origins(text: str) -> dict[str, str]:
    """Return field -> rule and place from what :func:`origin_text` wrote; ``...`` is among them where it ends so."""
    entries = (entry.strip().partition("=") for entry in text.split(";"))
    return {field: origin for field, _, origin in entries if field}


class Policy:
    """Rules, pools and spool stores of a namespace.

    >>> rules = [Rule("#", None, {"limit_bytes": "1000"}, {"limit_bytes": "shop.toml:2"})]
    >>> Policy(1, rules).resolve("orders").origins
    {'limit_bytes': '#@shop.toml:2'}

    Args:
        version: grows with every change.
        rules: in the order of the document.
        pools: of the namespace.
        source: name of the document.
        defaults: every field that a policy governs at its default: ``headgate.settings.DEFAULTS``.
        links: of the namespace.
        site: name of this site; empty where it has none.
        sites: others that links may lead to.
        channels: of the namespace; what they mean for their topics is among the rules.
        stores: of the namespace.
        strict: gates and buckets that nothing limits are not made.
        include_parent: who subscribes with a last ``>`` has the name before it too; rules and links say ``#``.
        descriptors: what proxies ask of limiters.
        user_limits: quotas of users over all nodes.
    """

    def __init__(
        self,
        version: int,
        rules: Iterable[Rule],
        pools: Iterable[Pool] = (),
        source: str = "",
        *,
        defaults: Mapping[str, str] | None = None,
        links: Iterable[Link] = (),
        site: str = "",
        sites: Iterable[Site] = (),
        channels: Iterable[Channel] = (),
        stores: Iterable[Store] = (),
        strict: bool = False,
        include_parent: bool = False,
        descriptors: Iterable[Descriptor] = (),
        user_limits: Iterable[UserLimit] = (),
    ) -> None:
        self.version = version
        self.rules = tuple(rules)
        self.pools = tuple(pools)
        self.links = tuple(links)
        self.site = site
        self.sites = tuple(sites)
        self.channels = tuple(channels)
        self.stores = tuple(stores)
        self.strict = strict
        self.include_parent = include_parent
        self.descriptors = tuple(descriptors)
        self.user_limits = tuple(user_limits)
        self.source = source
        self.defaults = dict(defaults or {})
        self._cache: dict[tuple[str, str | None], Resolved] = {}
        self._by_match: dict[str, list[Rule]] = {}
        self._wild = PatternIndex()
        self._rank = {
            id(rule): rank for rank, rule in enumerate(sorted(self.rules, key=lambda rule: rule.pattern.order))
        }
        for rule in self.rules:
            if rule.match not in self._by_match and not rule.pattern.exact:
                self._wild.add(rule.pattern)
            self._by_match.setdefault(rule.match, []).append(rule)

    def __repr__(self) -> str:
        counts = f"rules={len(self.rules)}, pools={len(self.pools)}, links={len(self.links)}"
        return f"Policy(version={self.version}, source={self.source!r}, {counts})"

    @cached_property
    def every_link(self) -> "Mapping[str, Link | Feed]":
        """Links between destinations and topics of channels, by the names of their leases; no routes by pattern."""
        feeds = {feed.link: feed for channel in self.channels for feed in channel.feeds}
        return {**{link.link: link for link in self.links if link.pattern is None}, **feeds}

    @cached_property
    def patterns(self) -> "Sequence[Link]":
        """Routes by pattern: each is a link of every topic that it matches."""
        return [link for link in self.links if link.pattern is not None]

    def links_with(self, topics: Iterable[str]) -> "dict[str, Link | Feed]":
        """Return :attr:`every_link`, and those that routes by pattern are, given the topics that there are."""
        found = dict(self.every_link)
        patterns = [(link, link.pattern) for link in self.patterns]
        for topic in topics:
            for link, pattern in patterns:
                if pattern is not None and pattern.matches(topic):
                    one = link.of(topic)
                    found.setdefault(one.link, one)
        return found

    def matching(self, name: str) -> list[Rule]:
        """Return the rules whose pattern matches a name, of whatever kind, the most specific last."""
        exact = self._by_match.get(name, ())
        found = [rule for rule in exact if rule.pattern.exact]  # a name may look like a pattern
        for pattern in self._wild.fitting(name.split(".")):
            found += self._by_match[pattern.text]
        return sorted(found, key=lambda rule: self._rank[id(rule)])

    def resolve(self, name: str, kind: str | None = None) -> Resolved:
        """Return what the policy says about a destination.

        Args:
            name: of the destination.
            kind: that it has, or will be given; None when the policy may choose: that of the most specific rule that
                names one.
        """
        key = (name, kind)
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            known = self._cache[key] = self._resolve(name, kind)
        return known

    def _resolve(self, name: str, kind: str | None) -> Resolved:
        rules = self.matching(name)
        if kind is None:
            kind = next((rule.kind for rule in reversed(rules) if rule.kind), None)
        values = {name: value for name, value in self.defaults.items() if _belongs(name, kind)}
        if kind != "limiter":  # what keys of a gate may have stays as it was set by hand, where no rule sets anything
            values = {name: value for name, value in values.items() if name not in KEYED_FIELDS}
        found: dict[str, str] = {}
        shared: dict[str, str] = {}
        for rule in rules:
            if rule.kind in (None, kind):
                for setting, value in rule.fields.items():
                    origin = f"{rule.match}@{rule.origins.get(setting, self.source)}"
                    if setting == SHARED:
                        shared[value] = origin
                    elif _belongs(setting, kind) and not (kind == "gate" and (setting, value) == _SPOOLS):
                        values[setting], found[setting] = value, origin
        if shared and _belongs("pools", kind):
            values["pools"] = " ".join(dict.fromkeys([*values.get("pools", "").split(), *shared]))
            found.setdefault("pools", list(shared.values())[-1])
        if values.get("dead_letter") == name:  # a rule for every name is one for the dead letters too
            values["dead_letter"] = self.defaults.get("dead_letter", "")
            found.pop("dead_letter")
        return Resolved(kind, values, {setting: found[setting] for setting in values if setting in found})

    def to_json(self) -> str:
        """Return the policy as the namespace keeps it."""
        return json.dumps(
            {
                "version": self.version,
                "rules": [
                    {"match": r.match, "kind": r.kind, "fields": dict(r.fields), "origins": dict(r.origins)}
                    for r in self.rules
                ],
                "pools": [{"name": p.name, "fields": dict(p.fields), "origins": dict(p.origins)} for p in self.pools],
                "links": [link.as_dict() for link in self.links],
                "site": self.site,
                "sites": [site.as_dict() for site in self.sites],
                "channels": [channel.as_dict() for channel in self.channels],
                "stores": [{"name": s.name, "fields": dict(s.fields), "origins": dict(s.origins)} for s in self.stores],
                **({"strict": True} if self.strict else {}),
                **({"include_parent": True} if self.include_parent else {}),
                **({"descriptors": [one.as_dict() for one in self.descriptors]} if self.descriptors else {}),
                **({"user_limits": [one.as_dict() for one in self.user_limits]} if self.user_limits else {}),
                "source": self.source,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes, *, defaults: Mapping[str, str] | None = None) -> "Policy":
        """Return the policy that :meth:`to_json` wrote.

        Raises:
            PolicyError: it is not of that form.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            return cls(
                int(document["version"]),
                [Rule(r["match"], r["kind"], dict(r["fields"]), dict(r["origins"])) for r in document["rules"]],
                [Pool(p["name"], dict(p["fields"]), dict(p["origins"])) for p in document["pools"]],
                str(document["source"]),
                defaults=defaults,
                links=[Link.from_dict(link) for link in document.get("links", document.get("bridges", ()))],
                site=str(document.get("site", "")),
                sites=[Site.from_dict(site) for site in document.get("sites", ())],
                channels=[Channel.from_dict(channel) for channel in document.get("channels", ())],
                stores=[Store(s["name"], dict(s["fields"]), dict(s["origins"])) for s in document.get("stores", ())],
                strict=document.get("strict") is True,
                include_parent=document.get("include_parent") is True,
                descriptors=[Descriptor.from_dict(one) for one in document.get("descriptors", ())],
                user_limits=[UserLimit.from_dict(one) for one in document.get("user_limits", ())],
            )
        except PolicyError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PolicyError(f"this is not a compiled policy ({error!r}); apply the document again") from None


def _belongs(setting: str, kind: str | None) -> bool:
    if kind == "limiter" or setting in LIMITER_FIELDS:
        keyed = kind in ("gate", "bucket") and setting in KEYED_FIELDS
        return keyed or (
            kind == "limiter" and setting in (*LIMITER_FIELDS, "durability", "ledger", "ledger_keep", "slices")
        )
    if kind is None:
        return True
    if kind == "bucket":
        return setting in BUCKET_FIELDS
    if setting in ("rate", "burst") or (setting == "slices" and kind not in SLICED_KINDS):
        return False
    return kind != "gate" or setting not in MESSAGE_FIELDS
