"""Bridges in policy documents: what they become, and which are refused."""

import pytest

import headgate
from headgate.core.links.link import Link, LinkNameParts, Site, cycle, ends_of
from headgate.core.policy import Policy
from headgate.namespace.policy_follower import says_the_same
from headgate.policy import BadDocument, loads
from headgate_coordinator.policy.plan import plan

TOPIC = "[[destination]]\nmatch = 'events'\nkind = 'topic'\n"


def bridge(name: str, source: str, to: str, more: str = "") -> str:
    return f"[[bridge]]\nname = '{name}'\nfrom = '{source}'\nto = {to}\n{more}\n"


def test_each_target_is_a_link() -> None:
    policy = loads(TOPIC + bridge("b", "events", "['billing', 'audit']", "max_hops = 3\ndead_letters = 'DLQ'"), "x")
    assert policy.links == (
        Link("b", "events", "billing", 3, "DLQ", "x:4"),
        Link("b", "events", "audit", 3, "DLQ", "x:4"),
    )
    assert [one.link for one in policy.links] == ["events>billing", "events>audit"]


def test_a_compiled_policy_keeps_its_bridges_and_one_of_before_has_none() -> None:
    policy = loads(bridge("b", "a", "'c'", "dead_letters = 'DLQ'"))
    again = Policy.from_json(policy.to_json())
    assert again.links == policy.links
    assert says_the_same(policy, again)
    assert not says_the_same(policy, loads(bridge("b", "a", "'d'", "dead_letters = 'DLQ'")))
    assert Policy.from_json('{"version":3,"rules":[],"pools":[],"source":"old"}').links == ()


@pytest.mark.parametrize("name", ["a b", "a>b", "100%", "ä/ö", "orders.eu"])
def test_the_name_of_a_lease_tells_both_ends(name: str) -> None:
    assert ends_of(Link("b", name, "to").link) == LinkNameParts(name, "to")
    assert ends_of(Link("b", "from", name).link) == LinkNameParts("from", name)
    assert " " not in Link("b", name, name).link
    there = Link("b", name, name, here="paris", site=Site("berlin", "env:HEADGATE_SITE_BERLIN"))
    assert ends_of(there.link) == LinkNameParts(name, name, "paris", "berlin")


BAD = [
    (bridge("b", "a", "'a'"), "x:4", "would forward 'a' to itself"),
    (bridge("b", "a", "'c'") + bridge("b", "c", "'d'"), "x:7", "there is a bridge 'b' already"),
    (bridge("b", "a", "'c'") + bridge("e", "a", "'c'"), "x:9", "bridge 'b' forwards 'a' to 'c' already"),
    (bridge("b", "a", "'c'", "dead_letters = 'c'"), "x:5", "is an end of bridge 'b' itself"),
    (bridge("b", "a", "[]"), "x:4", "[] names nothing"),
    (bridge("b", "a", "'c*'"), "x:4", "cannot be part of a name"),
    (bridge("b", "a", "'c'", "selector = 'region ='"), "x:5", "selector"),
    (bridge("b", "a", "'c'", "max_hops = 0"), "x:5", "write a whole number from 1 to 64"),
    (bridge("b", "a", "'c'", "frm = 'a'"), "x:5", "did you mean 'from'?"),
    (bridge("b", "a", "'c'") + bridge("e", "c", "'a'"), "x:6", "go in a circle: a -> c -> a"),
    (bridge("b", "a", "['c', 'd']"), "x:1", "of a queue each would get a part"),
    (bridge("b", "a", "'c'") + "[[destination]]\nmatch = 'c'\nkind = 'gate'", "x:1", "'c' is a gate"),
]


@pytest.mark.parametrize(("text", "place", "words"), BAD, ids=[words for *_, words in BAD])
def test_what_cannot_be_forwarded_is_refused_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(text, "x")
    (problem,) = caught.value.problems
    assert problem.place == place
    assert words in problem.text


def test_a_circle_is_allowed_where_one_of_its_bridges_limits_the_hops() -> None:
    loads(bridge("b", "a", "'c'", "max_hops = 2") + bridge("e", "c", "'a'"))


def test_a_circle_is_found_behind_a_way_that_leads_nowhere() -> None:
    ways = [("s", "a"), ("s", "b"), ("a", "x"), ("b", "x"), ("x", "y"), ("y", "z"), ("z", "x")]
    found = cycle(Link(f"{one}{other}", one, other) for one, other in ways)
    assert [one.name for one in found] == ["xy", "yz", "zx"]
    assert cycle(Link(f"{one}{other}", one, other) for one, other in ways[:-1]) == ()


@pytest.mark.parametrize("after", [bridge("b", "a", "'d'"), "destination = []"], ids=["another", "none"])
async def test_a_plan_tells_which_bridges_would_begin_and_end(one_url: str, namespace: str, after: str) -> None:
    async with headgate.connect(one_url, namespace=namespace) as client:
        await client.apply_policy(loads(bridge("b", "a", "'c'")))
        planned = await plan(client, loads(after, "x"))
    assert [one.target for one in planned.end] == ["c"]
    assert [one.target for one in planned.begin] == (["d"] if "bridge" in after else [])
    lines = list(planned.lines())
    assert "bridge b: a -> c would end (it is no longer named)" in lines
    assert ("bridge b: a -> d would begin (x:1)" in lines) == ("bridge" in after)
    assert len(planned.as_dict()["links"]["end"]) == 1
