"""Policies and queues as rules: which policy holds for a queue there is what comes of the rules here."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.brokers import NOT_COVERED, BrokerSetting, words
from headgate.errors import HeadgateError, InvalidValue
from headgate_coordinator.imports.draft import Table
from headgate_coordinator.imports.json_tree import Value
from headgate_coordinator.imports.names import check_pattern, is_name
from headgate_coordinator.imports.rabbitmq.keys import QUORUM_ATTEMPTS, TURNS
from headgate_coordinator.imports.rabbitmq.patterns import ANY, ONE, Glob, finds, globs_of, pattern_of
from headgate_coordinator.imports.reading import NO_VALUE, Reading

UNKNOWN: Final = "this setting is unknown; look it up in RabbitMQ's documentation, and see if a rule can say the same"
_STEPS: Final = 1024
_MOST_LOOKS: Final = 1_000_000
"""Of names by patterns, of that many characters of both multiplied."""
_BEGINS: Final = 16
"""Names that are seen to begin otherwise than a pattern in the time of one look."""
_OF_QUEUES: Final = ("queues", "all", "", "classic_queues", "quorum_queues")
_ONE_POLICY: Final = "one policy holds for a queue there, as a whole"


@dataclass(frozen=True, slots=True)
class Routes:
    """`Routes` holds the exchanges and bindings of a virtual host, to find where dead letters and fanouts go."""

    exchanges: Sequence[Value]
    bindings: Sequence[Value]
    types: dict[str, str] = field(init=False)
    _bound: dict[str, list[Value]] = field(init=False)

    def __post_init__(self) -> None:
        """Sort both by the exchange."""
        object.__setattr__(self, "types", {one.get("name").text: one.get("type").text for one in self.exchanges})
        bound: dict[str, list[Value]] = {}
        for one in self.bindings:
            bound.setdefault(one.get("source").text, []).append(one)
        object.__setattr__(self, "_bound", bound)

    def fanned_out(self, exchange: str) -> list[str]:
        """Return the queues that are bound to an exchange, unless another exchange is."""
        bound = self._bound.get(exchange, [])
        if any(one.get("destination_type").text == "exchange" for one in bound):
            return []
        return list(dict.fromkeys(one.get("destination").text for one in bound))

    def dead_letters(self, exchange: str, key: str | None) -> str:
        """Return the one queue that dead letters of an exchange come to; empty where there are others, or none."""
        if exchange == "":
            return key or ""
        targets = self.fanned_out(exchange)
        kind = self.types.get(exchange)
        if kind in ("direct", "topic"):
            keys = ("#", key) if kind == "topic" else (key,)
            bound = [one for one in self._bound.get(exchange, []) if one.get("routing_key").text in keys]
            targets = [one.get("destination").text for one in bound if key is not None or kind == "topic"]
        elif kind != "fanout":
            return ""
        return targets[0] if len(set(targets)) == 1 else ""


@dataclass(slots=True)
class _Policy:
    """`_Policy` is one policy, or a queue by its name for which other settings hold than for those beside it.

    Attributes:
        patterns: of ours, that find the same names.
        values: what it says, by the key of a rule, with the place of each.
    """

    name: str
    globs: list[Glob]
    patterns: list[str]
    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    begun: list[tuple[str, Glob]] = field(init=False)
    """Its globs, each with the characters that it begins with."""

    def __post_init__(self) -> None:
        """See what its globs begin with."""
        self.begun = [(re.split(f"[{ONE}{ANY}]", glob, maxsplit=1)[0], glob) for glob in self.globs]


@dataclass(slots=True)
class Rules:
    """`Rules` makes rules of policies and queues.

    Attributes:
        routes: of the same virtual host.
    """

    reading: Reading
    routes: Routes
    _policies: list[_Policy] = field(default_factory=list)
    _with_pattern: dict[str, list[int]] = field(default_factory=dict)
    _narrower: dict[str, dict[str, None]] = field(default_factory=dict)
    _looks: float = 0.0

    def read(self, policies: Sequence[tuple[str, Value]], queues: Sequence[tuple[str, Value]]) -> None:
        """Read all policies, those of the highest priority first, and then queues, each above all policies."""
        for file, one in sorted(policies, key=lambda each: (-_priority(each[1]), each[1].get("name").text)):
            self.reading.file = file
            self._policy(one)
        for file, one in queues:
            self.reading.file = file
            self._queue(one)
        self._end_circles()

    def bridge(self, place: Value, name: str, targets: Sequence[str]) -> bool:
        """Return whether a fanout became a bridge from a topic: where no limit of a target can hold it up."""
        if not (is_name(name) and targets and name not in targets and all(map(is_name, targets))):
            return False
        queues = [self._values_of(target) for target in targets]
        if any("limit.bytes" in values or "limit.messages" in values for values in queues):
            return False
        bridge = self.reading.draft.named("bridge", name)
        bridge.set("from", name, self.reading.place(place))
        bridge.set("to", list(targets) if len(targets) > 1 else targets[0], self.reading.place(place))
        self.reading.draft.rule(name, "topic").places["match"] = self.reading.place(place)
        return True

    def _values_of(self, queue: str) -> dict[str, tuple[Any, str]]:
        holds = self._holding(queue)
        return holds.values if holds else {}

    def _holding(self, queue: str) -> "_Policy | None":
        """Return the policy that holds for a queue; raises InvalidValue where too many were looked through.

        Most patterns begin with characters that most names do not: to see that costs little, and counts so.
        """
        for one in self._policies:
            self._looks += 1 / _BEGINS
            for begin, glob in one.begun:
                if not queue.startswith(begin):
                    self._looks += 1 / _BEGINS
                    continue
                self._looks += 1 + len(glob) * len(queue) // _STEPS
                if finds(glob, queue):
                    return one
            if self._looks > _MOST_LOOKS:
                raise InvalidValue(
                    f"{self.reading.file}:1: too many policies for so many queues; export one virtual host"
                )
        return None

    # -- Dead letters ----------------------------------------------------------------------------------------------

    def _end_circles(self) -> None:
        """Have no dead letter come back to where it was: there this is how a failed message waits, here it is not."""
        ends: set[str] = set()
        for (_, start, _), table in list(self.reading.draft.tables.items()):
            if "dead_letter" not in table.values:
                continue
            name, path = start if is_name(start) else str(table.values["dead_letter"]), dict[str, None]()
            while name and name not in ends and name not in path:
                path[name] = None
                name = self._dead_letter_of(name)
            if name in path:
                circle = list(path)[list(path).index(name) :]
                self._end(next((one for one in circle if self._expires(one)), circle[-1]))
            ends.update(path)

    def _dead_letter_of(self, name: str) -> str:
        words_of = name.split(".")
        wider = [f"{'.'.join(words_of[:count])}.>" for count in range(len(words_of) - 1, 0, -1)]
        for match in (name, *wider, "#"):
            table = self.reading.draft.tables.get(("destination", match, "queue"))
            if table and "dead_letter" in table.values:
                target = str(table.values["dead_letter"])
                return "" if target == "default" or (target == name and match != name) else target
        return ""

    def _expires(self, name: str) -> bool:
        table = self.reading.draft.tables.get(("destination", name, "queue"))
        return table is not None and "message_ttl" in table.values

    def _end(self, name: str) -> None:
        rule = self.reading.draft.rule(name, "queue")
        ours = f'dead_letter = "{self._dead_letter_of(name)}"'
        self.reading.take_back(
            {rule.places.get("dead_letter", "")}, ours,
            f"its dead letters would come back to it: retry = {{ delay = ... }} has what failed wait, without {name!r}",
        )  # fmt: skip
        rule.set("dead_letter", "default", "it would come back to where it was")

    # -- Policies --------------------------------------------------------------------------------------------------

    def _policy(self, one: Value) -> None:
        known = words("rabbitmq")["policy"]
        globs = globs_of(one.get("pattern").text)
        ours = [pattern_of(glob) for glob in globs or []]
        policy = _Policy(one.get("name").text, globs or [], [each for each in ours if each and _can_be(each)])
        refused, differs = self._refused(one, policy), ""
        if len(policy.patterns) < len(ours):
            differs = (
                "a wildcard is a whole word here: it holds for queues of this file that it finds; write more rules"
            )
        match = " and ".join(f'match = "{each}"' for each in policy.patterns) or "rules by name"
        for key, its in one.members.items():
            if key == "definition" and not refused:
                policy.values = self._say(its.members, "policy")
                self._add(policy)
            elif key in ("pattern", "apply-to", "priority"):
                narrow = "a rule is for queues of every type" if its.text in ("classic_queues", "quorum_queues") else ""
                text = 'kind = "queue"' if key == "apply-to" else match
                self.reading.become(its, known[key], its.text, "" if refused else text, refused or differs or narrow)
            elif key == "name":
                why = "a rule has no name; its comments say the line that a setting comes from"
                self.reading.note(its, BrokerSetting("policy", key), NOT_COVERED, its.text, why=why)
            elif key != "vhost":
                for name, leaf in its.members.items() if key == "definition" else [(key, its)]:
                    word = known.get(name, BrokerSetting("policy", name, differs=UNKNOWN))
                    self.reading.become(leaf, word, leaf.text, "", refused if name in known else "")

    def _refused(self, one: Value, policy: _Policy) -> str:
        """Return why nothing comes of a policy."""
        applies = one.get("apply-to").text
        if applies not in _OF_QUEUES:
            return f"it is for {applies}; topics and bridges are named by themselves"
        if not policy.globs:
            return "a pattern has words with dots between them, *, # and >; write a rule for each"
        above = self._above(policy)
        return above and f"the policy {above!r}, of a higher priority, holds for all of these, there as here"

    def _above(self, policy: _Policy) -> str:
        """Return the policy of a higher priority that holds for all that this one finds, if there is one."""
        if not policy.patterns or len(policy.patterns) < len(policy.globs):
            return ""
        first, *others = map(self._covering, policy.patterns)
        found = next((one for at, one in first.items() if all(at in other for other in others)), None)
        return (found.name or found.patterns[0]) if found else ""

    def _covering(self, match: str) -> dict[int, _Policy]:
        """Return the policies that have a pattern which finds all that this one finds, by place, the highest first."""
        places = sorted({at for wide in _wider(match) for at in self._with_pattern.get(wide, ())})
        return {at: self._policies[at] for at in places}

    def _add(self, policy: _Policy) -> None:
        """Write the rules of a policy, and have those above it say "default" where only this one says something."""
        for match in policy.patterns:
            rule = self.reading.draft.rule(match, "queue")
            for key, (value, place) in policy.values.items():
                rule.set(key, value, place)
        for narrow in [narrow for wide in policy.patterns for narrow in self._narrower.get(wide, ())]:
            rule = self.reading.draft.rule(narrow, "queue")
            for key in policy.values:
                if key not in rule.values:
                    rule.set(key, "default", _ONE_POLICY)
        for match in policy.patterns:
            self._with_pattern.setdefault(match, []).append(len(self._policies))
            for wide in _wider(match):
                self._narrower.setdefault(wide, {})[match] = None
        self._policies.append(policy)

    # -- Queues ----------------------------------------------------------------------------------------------------

    def _queue(self, one: Value) -> None:
        known, reading = words("rabbitmq")["queue"], self.reading
        name, arguments = one.get("name").text, one.get("arguments").members
        kind = one.get("type").text or arguments.get("x-queue-type", Value("", 0, "classic")).text
        refused = ""
        if not is_name(name):
            refused = "no destination can have this name; choose another"
        elif kind == "stream":
            refused = f"a stream is a topic here: have a topic {name!r} with a durable subscription for each reader"
        ours = "" if refused else f'match = "{name}", kind = "queue"'
        reading.become(one.get("name") if "name" in one.members else one, known["name"], name, ours, refused)
        for key, its in one.members.items():
            if key in ("auto_delete", "exclusive"):
                is_on = its.plain is True
                why = "nothing is deleted by itself, and no name is of one connection" if is_on else ""
                reading.become(its, known[key], its.text, "" if is_on else "false, as always here", why)
            elif key == "durable":
                reading.plain(its, known[key], its.text)
            elif key == "type":
                self._type(its, kind, "type")
            elif key == "arguments" and not its.members:
                reading.become(its, BrokerSetting("queue", key), "", "nothing is set, as here")
            elif key not in ("name", "vhost", "arguments"):
                for leaf in its.leaves():
                    reading.note(leaf, BrokerSetting("queue", key), NOT_COVERED, leaf.text, why=UNKNOWN)
        if refused:
            for key, its in arguments.items():
                reading.note(its, BrokerSetting("argument", key), NOT_COVERED, its.text, why=refused)
            return
        self._with_arguments(name, kind, arguments, reading.place(one))

    def _with_arguments(self, name: str, kind: str, arguments: dict[str, Value], place: str) -> None:
        """Write the rule of a queue: what its arguments say, and the policy that holds for it."""
        holds = self._holding(name)
        inherited = dict(holds.values) if holds else {}
        own = self._say({key.removeprefix("x-"): its for key, its in arguments.items()}, "argument")
        for key in ("limit.bytes", "limit.messages"):  # the lower one holds there
            if key in own and key in inherited:
                own[key] = min(own[key], inherited[key], key=lambda each: int(each[0]))
        if kind == "quorum":
            own.setdefault("durability", ("replicas:1", place))
            if "max_attempts" not in own | inherited:
                own["max_attempts"] = (QUORUM_ATTEMPTS, "default of quorum queues")
        queue = _Policy(name, [], [name], inherited | own)
        rule = self.reading.draft.rule(name, "queue")
        rule.places["match"] = place
        written = holds is not None and not _wider(name).isdisjoint(holds.patterns)
        if own or not written:
            for key, (value, at) in queue.values.items():
                rule.set(key, value, at)
            for other in self._covering(name).values():
                for key in other.values:
                    if key not in rule.values:
                        rule.set(key, "default", _ONE_POLICY)

    def _type(self, its: Value, kind: str, shown: str) -> None:
        known = words("rabbitmq")["argument"]["queue-type"]
        word = BrokerSetting("queue", shown, known.ours, known.default, known.states)
        ours, why = {
            "classic": ('durability = "memory", which is the default', ""),
            "quorum": ('durability = "replicas:1"', _MAJORITY),
            "stream": ("", "a stream is a topic here, with durable subscriptions"),
        }.get(kind, ("", NO_VALUE))
        self.reading.become(its, word, its.text, ours, why)

    # -- What they say ---------------------------------------------------------------------------------------------

    def _say(self, definition: dict[str, Value], group: str) -> dict[str, tuple[Any, str]]:
        """Return what a definition amounts to, by the keys of a rule; what became of each of its keys is noted."""
        table = Table("destination")
        known = words("rabbitmq")["policy"] | (words("rabbitmq")["argument"] if group == "argument" else {})
        for key, its in definition.items():
            word = known.get(key)
            shown = f"x-{key}" if group == "argument" else key
            if word is None:
                for leaf in its.leaves():
                    self.reading.note(leaf, BrokerSetting(group, shown), NOT_COVERED, leaf.text, why=UNKNOWN)
                continue
            word = BrokerSetting(group, shown, word.ours, word.default, word.states, word.differs)
            if key == "queue-type":
                self._type(its, its.text, shown)
                continue
            try:
                ours, why = self._turn(table, key, its, definition)
            except ValueError:
                ours, why = "", NO_VALUE
            self.reading.become(its, word, its.text, ours, why)
        return {key: (value, table.places.get(key, "")) for key, value in table.values.items()}

    def _turn(self, rule: Table, key: str, its: Value, given: dict[str, Value]) -> tuple[str, str]:
        """Return our words for a key, and how they differ; raises ValueError where its value is nonsense."""
        place = self.reading.place(its)
        if key.startswith("dead-letter-") and key != "dead-letter-strategy":
            return self._dead_letter(rule, given, place)
        if key in TURNS:
            return TURNS[key](rule, its, given, place)
        if key == "dead-letter-strategy" and "dead-letter-exchange" in given:
            return "dead_letter", ""
        return "", ""

    def _dead_letter(self, rule: Table, given: dict[str, Value], place: str) -> tuple[str, str]:
        if "dead-letter-exchange" not in given:
            return "", "without dead-letter-exchange there are none"
        exchange, key = given["dead-letter-exchange"].text, given.get("dead-letter-routing-key")
        name = self.routes.dead_letters(exchange, key.text if key else None)
        if not is_name(name):
            why = "dead letters go to one queue here, and which one these files do not say: write dead_letter = NAME"
            return "", why
        rule.set("dead_letter", name, place)
        return f'dead_letter = "{name}"', ""


_MAJORITY: Final = (
    "one replica of Redis has a message before it is confirmed, there a majority; without any, sends are refused"
)


def _priority(policy: Value) -> float:
    priority = policy.get("priority").plain
    return priority if isinstance(priority, int) else 0


def _can_be(pattern: str) -> bool:
    try:
        check_pattern(pattern)
    except HeadgateError:
        return False
    return True


def _wider(match: str) -> set[str]:
    """Return the patterns that find all that this one finds, itself among them."""
    return {match, "#"} | {f"{match[: found.end()]}>" for found in re.finditer(r"\.", match)}
