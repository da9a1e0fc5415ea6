"""Descriptors of a document: what proxies ask of limiters, and what is refused of it, with its place."""

from pathlib import Path

import pytest

import headgate
from headgate.core.policy import Policy
from headgate.policy import BadDocument, load, loads
from headgate_coordinator.cli.policy import _of_proxies
from headgate_coordinator.envoy.mapping import DescriptorRules
from headgate_coordinator.policy.lint import lint
from headgate_coordinator.policy.plan import plan
from tests.support.extent import each

LIMITER = '[[limiter]]\nmatch = "api"\n[[limiter.limit]]\nname = "requests"\nrate = "10/s"\n'
SLOTS = '[[limiter.limit]]\nname = "slots"\nat_once = 3\n'
ONE = """[[descriptor]]
domain = "shop"
entries = ["path=/search", "tenant"]
limiter = "api"
amounts = { requests = "5" }
key = "tenant"
"""
HELD = """[[descriptor]]
domain = "shop"
entries = ["begins"]
limiter = "api"
amounts = { slots = 1 }
hold = "begins"
ttl = "90s"
"""
ENDS = '[[descriptor]]\ndomain = "shop"\nentries = ["ends"]\nlimiter = "api"\nrelease = "ends"\n'


def test_a_policy_keeps_its_descriptors_as_it_is_stored_and_read() -> None:
    policy = loads(ONE + HELD + ENDS + LIMITER + SLOTS, "shop.toml")
    again = Policy.from_json(policy.to_json())
    assert again.descriptors == policy.descriptors
    one, held, ends = policy.descriptors
    assert (one.amounts, one.key, one.hold, one.origin) == ({"requests": 5}, "tenant", None, "shop.toml:1")
    assert (held.hold, held.ttl_ms, ends.release, ends.amounts) == ("begins", 90_000, "ends", {})
    assert "descriptors" not in loads(LIMITER).to_json(), "whoever asks nothing has nothing of it"


def test_the_example_lays_no_traps() -> None:
    policy = load(Path(__file__).resolve().parents[3] / "deploy" / "envoy.toml")
    assert (len(policy.descriptors), lint(policy)) == (3, [])


def test_the_most_specific_descriptor_counts_and_none_for_other_keys() -> None:
    texts = [ONE.replace("path=/search", path).replace('"tenant"]', f'"{tenant}"]') for path, tenant in (
        ("path", "tenant"), ("path", "tenant=a"), ("path=/x", "tenant"), ("path=/x", "tenant=a"),
    )]  # fmt: skip
    rules = DescriptorRules(loads(LIMITER + "".join(texts)).descriptors)
    for path, tenant, entries in (
        ("/", "b", ("path", "tenant")), ("/", "a", ("path", "tenant=a")), ("/x", "b", ("path=/x", "tenant")),
        ("/x", "a", ("path=/x", "tenant=a")),
    ):  # fmt: skip
        found = rules.of("shop", [("path", path), ("tenant", tenant)])
        assert found
        assert found.entries == entries
    assert rules.of("shop", [("tenant", "a"), ("path", "/")]) is None
    assert rules.of("shop", [("path", "/")]) is None
    assert rules.of("other", [("path", "/"), ("tenant", "a")]) is None


WRONG = [
    (ONE.replace("domain", "domian"), 2, "did you mean 'domain'?"),
    (ONE.replace('"shop"', "1"), 2, "domain: '1'; write text of 1 to 255 characters"),
    (ONE.replace('"shop"', f'"{"d" * 256}"'), 2, "1 to 255 characters"),
    (ONE.replace('["path=/search", "tenant"]', "[]"), 3, "entries: write a list of 1 to 16"),
    (ONE.replace('["path=/search", "tenant"]', '"default"'), 3, "entries: write a list of 1 to 16"),
    (ONE.replace('"tenant"]', '"=a"]'), 3, "one without a key"),
    (ONE.replace("path=/search", "tenant=b"), 3, "name each key once"),
    (ONE.replace('"api"', '""'), 4, "limiter"),
    (ONE.replace('{ requests = "5" }', "5"), 5, "amounts: write a table"),
    (ONE.replace('"5"', '"x"'), 5, "amounts"),
    (ONE.replace('"5"', "0"), 5, "amounts"),
    (ONE.replace('"5"', "11"), 1, "11 of 'requests' at once can never be admitted: 'api' has requests 10/s"),
    (ONE.replace("requests", "tokens"), 1, "'api' has no limit 'tokens'; it has requests, slots"),
    (ONE.replace('amounts = { requests = "5" }\n', ""), 1, "amounts: is missing; say what one hit takes"),
    (ONE.replace('key = "tenant"', 'key = "tenent"'), 6, "key: 'tenent' is not a key of the entries"),
    (ONE + 'ttl = "1min"', 7, "ttl: belongs to a hold"),
    (HELD.replace("90s", "0.5s"), 7, "ttl: '0.5s'; use 1s to 1h"),
    (HELD.replace("90s", "2h"), 7, "ttl: '2h'; use 1s to 1h"),
    (HELD.replace('"90s"', "90"), 7, "ttl: 90 has no unit"),
    (HELD.replace('hold = "begins"\nttl = "90s"', ""), 1, "'slots' of 'api' is held at once; write hold"),
    (HELD + 'release = "begins"', 8, "a descriptor begins a hold or ends one"),
    (ENDS + "amounts = { slots = 1 }", 6, "amounts: a release gives back what was held"),
    (ONE + ONE, 9, "policy.toml:1 says what these ask already"),
    ('[[destination]]\nmatch = "orders"\nkind = "queue"\n' + ONE.replace("api", "orders"), 4, "'orders' is a queue"),
    (ONE * 1001, 1, "1001 are too many; at most 1000"),
]


@each(("text", "line", "word"), WRONG)
def test_what_is_wrong_is_named_with_its_place(text: str, line: int, word: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(text + "\n" + LIMITER + SLOTS)
    assert [problem.line for problem in caught.value.problems if word in str(problem)] == [line], str(caught.value)


async def test_a_plan_says_what_proxies_would_ask_otherwise(client: headgate.Client) -> None:
    """Where it is written makes no difference; mutant: descriptors are no part of what a policy says."""
    await client.apply_policy(loads(ONE + LIMITER))
    assert (await plan(client, loads(ONE + LIMITER, "policy.toml"))).same
    moved = await plan(client, loads(LIMITER + ONE))
    assert (moved.asked, moved.unasked) == ((), ())
    planned = await plan(client, loads(ONE.replace('"5"', '"6"') + LIMITER))
    assert not planned.same
    assert [one.amounts for one in (*planned.asked, *planned.unasked)] == [{"requests": 6}, {"requests": 5}]
    lines = "\n".join(planned.lines())
    assert "descriptor shop: path=/search, tenant: api would be asked for requests=6 (policy.toml:1)" in lines
    assert planned.as_dict()["descriptors"]["end"][0]["limiter"] == "api"
    assert "amounts" in [row[2] for row in _of_proxies(await client.policy())]
