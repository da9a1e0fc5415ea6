"""Sites, zones and routes in policy documents: what they become, and which are refused."""

import pytest

from headgate.core.links.link import Link, Site, ends_of
from headgate.core.policy import Policy
from headgate.policy import BadDocument, loads
from headgate.redis.keys import forwarder_id
from tests.support.extent import each

HERE = "site_name = 'paris'\n"
BERLIN = "[[site]]\nname = 'berlin'\nurl = 'env:HEADGATE_SITE_BERLIN'\nnamespace = 'shop'\n"
ROUTE = "[[route]]\nname = 'r'\nto = 'berlin'\n"
ZONE = "[[zone]]\nname = 'mesh'\nhops = '{}'\n"


def test_each_topic_and_queue_is_a_link() -> None:
    policy = loads(HERE + BERLIN + ROUTE + "topics = ['a', 'b']\nqueues = 'c'\nreplicas = 1\n", "x")
    berlin = Site("berlin", "env:HEADGATE_SITE_BERLIN", "shop")
    more = {"origin": "x:6", "kind": "route", "here": "paris", "site": berlin, "replicas": 1}
    assert policy.links == tuple(Link("r", name, name, **more) for name in "abc")  # type: ignore[arg-type]
    assert [one.link for one in policy.links] == [f"paris:{name}>berlin:{name}" for name in "abc"]
    assert (policy.site, policy.sites) == ("paris", (berlin,))
    assert Policy.from_json(policy.to_json()).links == policy.links


def test_routed_names_have_their_kinds_and_no_limit_holds_a_routed_queue() -> None:
    rules = "[[destination]]\nmatch = '#'\nlimit = 100\nenforce = 'always'\n"
    policy = loads(HERE + BERLIN + ROUTE + "topics = 'a'\nqueues = 'b'\n" + rules, "x")
    assert [policy.resolve(name).kind for name in "ab"] == ["topic", "queue"]
    assert [policy.resolve(name).fields["enforce"] for name in "ab"] == ["always", "off"]
    assert policy.resolve("b").origins["enforce"] == "b@x:10"


def test_a_rate_is_a_bucket_of_all_links_of_the_table() -> None:
    policy = loads(HERE + BERLIN + ROUTE + "topics = ['a', 'b']\nrate = '90/min'\nbyte_rate = '1MB/s'\n", "x")
    told = {name: policy.resolve(f"route r: {name}/s").fields for name in ("messages", "bytes")}
    assert {name: (fields["rate"], fields["burst"]) for name, fields in told.items()} == {
        "messages": ("1.5", "1"), "bytes": ("1000000.0", "100000"),
    }  # fmt: skip


@pytest.mark.parametrize(("hops", "zone"), [("one", "mesh"), ("many", "")])
def test_a_zone_of_one_hop_marks_its_links(hops: str, zone: str) -> None:
    policy = loads(HERE + BERLIN + ZONE.format(hops) + ROUTE + "topics = 'a'\nzone = 'mesh'\n")
    assert policy.links[0].zone == zone


def test_a_bridge_may_lead_to_another_site() -> None:
    policy = loads(HERE + BERLIN + "[[bridge]]\nname = 'b'\nfrom = 'a'\nto = 'a'\nsite = 'berlin'\n")
    assert [(one.link, one.where) for one in policy.links] == [("paris:a>berlin:a", "berlin:a")]
    assert ends_of(policy.links[0].link).site == "berlin"


def test_at_the_target_links_of_other_namespaces_and_sites_are_others() -> None:
    ids = {forwarder_id(namespace, f"{site}:a>rome:a") for namespace in ("x", "y") for site in ("paris", "berlin")}
    assert len(ids) == 4
    assert forwarder_id("x", "a>b") == forwarder_id("y", "a>b"), "within a site, the slot tells them apart"


ROME = BERLIN.replace("berlin", "rome").replace("BERLIN", "ROME")


def test_a_route_by_pattern_is_the_links_of_the_topics_that_there_are_and_makes_none() -> None:
    one = ROUTE + "topics = ['news.>', 'news.eu', '*.eu']\nreplicas = 1\n"
    other = ROUTE.replace("'r'", "'s'").replace("berlin", "rome") + "topics = 'news.>'\n"
    policy = loads(HERE + BERLIN + ROME + one + other, "x")
    assert list(policy.every_link) == ["paris:news.eu>berlin:news.eu"]
    topics = ["news.eu", "news.us", "news", "other.eu"]
    assert sorted(policy.links_with(topics)) == [
        "paris:news.eu>berlin:news.eu", "paris:news.eu>rome:news.eu", "paris:news.us>berlin:news.us",
        "paris:news.us>rome:news.us", "paris:other.eu>berlin:other.eu",
    ]  # fmt: skip
    link = policy.links_with(["news.us"])["paris:news.us>berlin:news.us"]
    assert isinstance(link, Link)
    assert link.replicas == 1
    assert policy.resolve("news.us").kind is None
    assert policy.resolve("news.eu").kind == "topic"
    assert Policy.from_json(policy.to_json()).patterns == policy.patterns


BAD = [
    (BERLIN + ROUTE + "topics = 'a'", "x:7", "this site has no name"),
    (HERE + ROUTE.replace("berlin", "rom") + "topics = 'a'" + "\n" + BERLIN, "x:4", "there is no site 'rom'"),
    (HERE + BERLIN + ROUTE.replace("berlin", "berln") + "topics = 'a'", "x:8", "did you mean 'berlin'?"),
    (HERE + BERLIN + ROUTE, "x:6", "a route of what?"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\nzone = 'mesh'", "x:10", "there is no zone 'mesh'"),
    (HERE + BERLIN + BERLIN + ROUTE + "topics = 'a'", "x:7", "there is a site 'berlin' already"),
    (HERE + BERLIN.replace("berlin", "paris"), "x:3", "is the name of this site itself"),
    (HERE + BERLIN + ROUTE + "topics = ['a', 'a']", "x:9", "forwards 'a' to 'berlin:a' already"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\ndead_letters = 'a'", "x:10", "is an end of route 'r' itself"),
    (HERE + BERLIN.replace("env:HEADGATE_SITE_BERLIN", "redis://me:hush@h"), "x:4", "it holds a password"),
    (HERE + BERLIN.replace("env:HEADGATE_SITE_BERLIN", "redis+sentinel://h/x?sentinel_passwor%64=hush"), "x:4",
     "it holds a password"),
    (HERE + BERLIN.replace("env:HEADGATE_SITE_BERLIN", "http://h"), "x:4", "use 'env:HEADGATE_SITE_BERLIN'"),
    (HERE + BERLIN.replace("env:HEADGATE_SITE_BERLIN", "env:HOME"), "x:4", "names no variable"),
    (HERE.replace("paris", "Paris!"), "x:1", "is not a site's or zone's name"),
    (HERE + BERLIN + ROUTE + "topics = ['a', 'news.>.b']", "x:9", "can only be the last word; write e.g. 'news.>'"),
    (HERE + BERLIN + ROUTE + "topics = 'ne*'", "x:9", "a wildcard is a whole word"),
    (HERE + BERLIN + ROUTE + "topics = ['a.>', 'a.>']", "x:9", "forwards 'a.>' to 'berlin:a.>' already"),
    (HERE + BERLIN + ROUTE + "queues = 'a.>'", "x:9", "cannot be part of a name"),
    (HERE + BERLIN + ROUTE + "topics = []", "x:9", "give one name, or several"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\nreplicas = -1", "x:10", "is not a number of replicas"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\nrate = 'fast'", "x:10", "fast"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\n" + ROUTE + "topics = 'b'", "x:11", "there is a route 'r' already"),
    (HERE + BERLIN + ROUTE.replace("'r'", f"'{'n' * 201}'") + "topics = 'a'", "x:7", "more than 200 bytes"),
    (HERE + BERLIN + ROUTE + "topics = 'a'\n[[destination]]\nmatch = 'a'\nkind = 'queue'", "", "so a rule for a"),
]  # fmt: skip


@each(("text", "place", "why"), BAD)
def test_what_makes_no_sense_is_refused(text: str, place: str, why: str) -> None:
    with pytest.raises(BadDocument) as caught:
        loads(text, "x")
    told = str(caught.value)
    assert place in told
    assert why in told
    assert "hush" not in told


@pytest.mark.parametrize(
    ("said", "means"),
    [("durability = 'replicas:2'", (2, False)), ("durability = 'fsync'\nreplicas = 1", (1, True)), ("", (0, False))],
)
def test_a_link_has_the_durability_that_is_said_and_replicas_are_short_for_it(
    said: str, means: tuple[int, bool]
) -> None:
    policy = loads(HERE + BERLIN + ROUTE + f"topics = 'a'\n{said}\n", "x")
    link = policy.links[0]
    assert (link.replicas, link.fsync) == means
    assert type(link).from_dict(link.as_dict()) == link
