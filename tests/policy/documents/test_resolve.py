"""What the rules for a destination add up to, and where each value came from."""

import inspect
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import policy as core_policy
from headgate.core.policy import ORIGIN_BYTES, Policy, Pool, Rule, Store
from headgate.core.settings_table import BUCKET_FIELDS, KEYED_FIELDS, MESSAGE_FIELDS, STORES
from headgate.errors import PolicyError
from headgate.namespace.policy_follower import says_the_same
from headgate.policy import loads
from headgate.settings import DEFAULTS, KINDS, ROWS, settings_of

NAMES = [".".join(words) for size in (1, 2, 3) for words in itertools.product("ab", repeat=size)]
MATCHES = ["#", ">", "a", "a.#", "a.>", "a.*", "*.b", "a.b", "*", "a.b.#", "b.#", "*.*.a"]
FIELDS = ["limit_bytes", "hard_bytes", "when_full", "ledger", "rate"]

rules = st.lists(
    st.builds(
        lambda match, kind, fields: (match, kind, fields),
        st.sampled_from(MATCHES),
        st.sampled_from([None, *KINDS]),
        st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(["1", "2", "3"])),
    ),
    max_size=7,
)


def policy(*told: tuple[str, str | None, dict[str, str]]) -> Policy:
    return Policy(
        1,
        [Rule(m, k, f, dict.fromkeys(f, f"shop.toml:{line}")) for line, (m, k, f) in enumerate(told, 1)],
        defaults=DEFAULTS,
    )


@given(rules, st.sampled_from(NAMES), st.sampled_from([None, *KINDS]))
def test_the_most_specific_rule_wins_field_by_field(
    told: list[tuple[str, str | None, dict[str, str]]], name: str, kind: str | None
) -> None:
    made = policy(*told)
    resolved = made.resolve(name, kind)
    candidates = [rule for rule in made.rules if rule.pattern.matches(name)]

    def strongest(found: list[Rule]) -> Rule:
        return max(enumerate(found), key=lambda pair: (pair[1].pattern.order, pair[0]))[1]

    with_kind = [rule for rule in candidates if rule.kind]
    assert resolved.kind == (kind or (strongest(with_kind).kind if with_kind else None))
    for field in FIELDS:
        saying = [rule for rule in candidates if field in rule.fields and rule.kind in (None, resolved.kind)]
        is_of_limiters = field in ("ledger", "ledger_keep")
        if (
            (resolved.kind == "limiter" and not is_of_limiters)
            or (resolved.kind == "bucket" and field not in BUCKET_FIELDS)
            or (
                resolved.kind not in (None, "bucket")
                and (field == "rate" or (resolved.kind == "gate" and field in MESSAGE_FIELDS))
            )
        ):
            assert field not in resolved.fields
        elif saying:
            winner = strongest(saying)
            assert resolved.fields[field] == winner.fields[field]
            assert resolved.origins[field] == f"{winner.match}@{winner.origins[field]}"
        else:
            assert resolved.fields.get(field) == DEFAULTS.get(field)
            assert field not in resolved.origins


@given(rules, st.sampled_from(NAMES))
def test_a_policy_survives_its_own_spelling(told: list[tuple[str, str | None, dict[str, str]]], name: str) -> None:
    made = Policy(
        4,
        policy(*told).rules,
        [Pool("memory", {"limit_bytes": "5"}, {"limit_bytes": "x:1"})],
        "x",
        stores=[Store("disk", {"url": "file:///a"}, {"url": "x:2"})],
    )
    again = Policy.from_json(made.to_json())
    assert (again.version, again.rules, again.pools, again.source) == (4, made.rules, made.pools, "x")
    assert again.stores == made.stores
    assert Policy.from_json('{"version":3,"rules":[],"pools":[],"source":"old"}').stores == ()
    assert again.resolve(name) == made.resolve(name)
    assert again.to_json() == made.to_json()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "rules": [{"match": "a..b"}], "pools": []}', "null"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        Policy.from_json(text)


def test_without_rules_everything_is_at_its_default() -> None:
    resolved = policy().resolve("orders", "queue")
    assert (resolved.fields, resolved.origins, resolved.origin_text) == (DEFAULTS, {}, "")


def test_a_kind_takes_only_what_it_has() -> None:
    everything = policy(("#", None, dict.fromkeys([*DEFAULTS, *KEYED_FIELDS, "rate", "burst"], "7")))
    assert set(everything.resolve("a", "bucket").fields) == BUCKET_FIELDS
    assert set(everything.resolve("a", "queue").fields) == set(DEFAULTS)
    assert set(everything.resolve("a", "gate").fields) == set(DEFAULTS) - MESSAGE_FIELDS | KEYED_FIELDS


def test_the_fields_of_messages_are_those_that_a_gate_refuses() -> None:
    values: dict[str, object] = {"dead_letter": "a", "deadlock": "fail", "confirm": "a", "slow_action": "notify"}
    values |= {"fair_by": "producer", "fair_weights": {"a": 1}, "max_overtaken": 50} | dict.fromkeys(STORES, "a")
    for name, row in ROWS.items():
        if (
            row.field in MESSAGE_FIELDS and not name.endswith("burst") and name not in ("slices", "order_by")
        ):  # a queue's
            with pytest.raises(PolicyError, match=f"^{name} belongs to a queue or a topic, not to a gate"):
                settings_of({"kind": "gate", name: values.get(name, 5)}).fields()
    assert set(DEFAULTS) > MESSAGE_FIELDS


@pytest.mark.parametrize("limit", ["1000", "unlimited", None])
def test_a_share_stays_a_share_of_the_limit_that_holds_at_each_moment(limit: str | None) -> None:
    made = policy(("#", None, {"resume_bytes": "80.0%"}), ("a", None, {"limit_bytes": limit} if limit else {}))
    resolved = made.resolve("a", "queue")
    assert resolved.fields["resume_bytes"] == "80.0%"
    assert "resume_bytes" in resolved.origins


def test_the_text_of_origins_has_its_bound() -> None:
    made = policy(("é" * 100, None, dict.fromkeys(DEFAULTS, "1")))
    resolved = made.resolve("é" * 100, "queue")
    entries = resolved.origin_text.split(";")
    assert len(resolved.origin_text.encode()) <= ORIGIN_BYTES
    assert entries[0] == f"limit_bytes={'é' * 100}@shop.toml:1"
    assert entries[-1] == "..."
    short = policy(("a;b", None, {"limit_bytes": "1", "oversize": "refuse"})).resolve("a;b", "queue")
    assert short.origin_text == "limit_bytes=a%3Bb@shop.toml:1;oversize=a%3Bb@shop.toml:1"


def test_what_is_remembered_has_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_policy, "CACHED", 100)
    made = policy(("#", None, {"limit_bytes": "1"}))
    for number in range(110):
        made.resolve(f"a.{number}")
        assert len(made._cache) <= 100
    assert made.resolve("a.1") is made.resolve("a.1")


def test_a_remembered_resolution_costs_far_less_than_a_new_one() -> None:
    made = policy(*((f"a{number}.#", None, {"limit_bytes": "1"}) for number in range(300)), ("#", None, {}))
    names = [f"a{number % 300}.b{number}" for number in range(3000)]

    def seconds() -> float:
        start = time.perf_counter()
        for name in names:
            made.resolve(name)
        return time.perf_counter() - start

    first = seconds()
    assert min(seconds() for _ in range(3)) < first / 5


PARTS = {
    "rules": '[[destination]]\nmatch = "a"\nlimit = 5\n',
    "pools": '[[pool]]\nname = "a"\nlimit = 5\n',
    "links": '[[bridge]]\nname = "a"\nfrom = "b"\nto = "c"\n',
    "site": 'site_name = "a"\n',
    "sites": '[[site]]\nname = "a"\nurl = "redis://a"\n',
    "channels": '[[channel]]\nname = "a"\ngroup = "239.1.1.1"\nport = 5000\nmaxrate = "1MB"\ntopics = ["a"]\n',
    "stores": '[[store]]\nname = "a"\nurl = "file:///a"\nlimit = 5\n',
    "strict": "strict = true\n",
    "include_parent": "include_parent = true\n",
    "descriptors": '[[limiter]]\nmatch = "l"\nlimit = [{ name = "requests", rate = "1/s" }]\n'
    '[[descriptor]]\ndomain = "d"\nentries = ["a"]\nlimiter = "l"\namounts = { requests = 1 }\n',
    "user_limits": '[[user_limit]]\nname = "a"\nusers = ["ann"]\ndestinations = 5\n',
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_a_policy_that_differs_in_one_part_does_not_say_the_same(part: str) -> None:
    """It would be in force already, and applying it would change nothing. Mutant: a part is left out."""
    nothing, one = loads("destination = []"), loads(PARTS[part])
    assert getattr(one, part) != getattr(nothing, part)
    parts = set(inspect.signature(Policy).parameters) - {"version", "source", "defaults"}
    assert parts == set(PARTS)
    bare = {name: getattr(nothing, name) for name in parts}
    assert not says_the_same(Policy(1, **bare), Policy(1, **(bare | {part: getattr(one, part)})))
