"""Channels of a policy: what they say, what is wrong with them, and what they mean for their topics."""

import pytest

import headgate
from headgate.core.links.channel import Channel, feed_of
from headgate.core.policy import Policy
from headgate.namespace.policy_follower import says_the_same
from headgate.policy import BadDocument, loads
from headgate.redis.keys import link_id
from headgate_coordinator.policy.lint import lint
from headgate_coordinator.policy.plan import plan
from tests.support.extent import each


def channel(name: str = "quotes", topics: str = "['prices']", more: str = "", group: str = "239.1.2.3") -> str:
    return f"[[channel]]\nname = '{name}'\ntopics = {topics}\ngroup = '{group}'\nport = 7000\n{more}\n"


@pytest.mark.parametrize("switch", ["", "flow_control = 'off'\n"])
def test_a_channel_has_no_topics_with_slices(switch: str) -> None:
    sliced = "[[destination]]\nmatch = 'prices'\nkind = 'topic'\nslices = 3\n"
    with pytest.raises(BadDocument, match="slices"):
        loads(switch + sliced + channel(), "x")


def test_a_channel_says_where_and_how_fast_its_topics_are_sent() -> None:
    said = "ttl = 3\ninterface = '10.0.0.7'\nmaxrate = '1MB'\npacket = '8KB'"
    policy = loads(channel(topics="['prices', 'news']", more=said), "x")
    expected = Channel("quotes", ("prices", "news"), "239.1.2.3", 7000, 3, "10.0.0.7", 1e6, 8000, "x:1")
    assert policy.channels == (expected,)
    assert [feed.link for feed in expected.feeds] == ["prices>>quotes", "news>>quotes"]
    default = Channel("quotes", ("prices",), "239.1.2.3", 7000, 1, "", 10_000_000, 1400, "x:1")
    assert loads(channel(), "x").channels == (default,)


@pytest.mark.parametrize(
    ("written", "rate"), [("'1MB'", 1e6), ("1000000", 1e6), ("'1MiB/s'", 2**20), ("'6MB/min'", 1e5)]
)
def test_a_maxrate_is_a_size_or_a_rate(written: str, rate: float) -> None:
    assert loads(channel(more=f"maxrate = {written}")).channels[0].maxrate == rate


def test_a_compiled_policy_keeps_its_channels_and_one_of_before_has_none() -> None:
    policy = loads(channel(more="ttl = 0"))
    again = Policy.from_json(policy.to_json())
    assert again.channels == policy.channels
    assert says_the_same(policy, again)
    assert not says_the_same(policy, loads(channel(more="ttl = 2")))
    assert Policy.from_json('{"version":3,"rules":[],"pools":[],"source":"old"}').channels == ()


def test_a_link_of_a_channel_is_called_like_no_link_between_destinations() -> None:
    bridge = loads("[[bridge]]\nname = 'b'\nfrom = 'prices'\nto = 'quotes'").links[0]
    assert feed_of(bridge.link) is None
    odd = loads(channel("a:b", "['x:y']")).channels[0].feeds[0]
    assert feed_of(odd.link) == ("x:y", "a:b")


@each(
    ("document", "place", "text"),
    [
        (channel(group="192.0.2.1"), "x:4", "'192.0.2.1' is not a multicast address; use one of 224.0.0.0/4"),
        (channel(group="quotes.example"), "x:4", "is not a multicast address"),
        (channel().replace("7000", "70000"), "x:5", "70000; write a whole number from 1 to 65535"),
        (channel().replace("7000", "0"), "x:5", "0; write a whole number from 1 to 65535"),
        (channel(more="ttl = 256"), "x:6", "256; write a whole number from 0 to 255"),
        (channel(more="ttl = true"), "x:6", "write a whole number from 0 to 255"),
        (channel(more="interface = '239.1.1.1'"), "x:6", "is not the address of an interface"),
        (channel(more="interface = 'eth0'"), "x:6", "is not the address of an interface"),
        (channel(more="interface = '10.0.0.7/24'"), "x:6", "is not the address of an interface"),
        (channel(more="interface = '239.0.0.0/8'"), "x:6", "is not the address of an interface"),
        (channel(more="maxrate = 0"), "x:6", "write bytes a second, such as '1MB'"),
        (channel(more="maxrate = 'fast'"), "x:6", "'fast' is not a size"),
        (channel(more="maxrate = 1000"), "x:6", "less than a packet of 1400 bytes, and 28 of headers, a second"),
        (channel(more="packet = 100"), "x:6", "a packet has 256 to 65507 bytes"),
        (channel(more="packet = '1MB'"), "x:6", "a packet has 256 to 65507 bytes"),
        (channel("n" * 200, more="packet = 256"), "x:6", "too few beside the names"),
        (channel(topics="[]"), "x:3", "write a list of names of topics"),
        (channel(topics="'prices'"), "x:3", "write a list of names of topics"),
        (channel(topics="['prices', 'prices']"), "x:3", "is listed twice"),
        (channel(topics="['prices.*']"), "x:3", "cannot be part of a name"),
        (channel() + channel(group="239.1.2.4", topics="['news']"), "x:8", "there is a channel 'quotes' already"),
        (channel() + channel("other", "['news']"), "x:10", "channel 'quotes' sends to 239.1.2.3:7000 already"),
        (channel() + channel("other", group="239.1.2.4"), "x:9", "channel 'quotes' sends 'prices' already"),
        (channel(more="maxrat = 1"), "x:6", "did you mean 'maxrate'?"),
        (channel() + "[[destination]]\nmatch = 'prices'\nkind = 'queue'", "x:1", "'prices' is a queue"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(document: str, place: str, text: str) -> None:
    with pytest.raises(BadDocument) as error:
        loads(document, "x")
    found = [problem for problem in error.value.problems if text in problem.text]
    assert found, error.value.problems
    assert found[0].place == place


def test_the_own_limit_of_its_topics_plays_no_part_and_receipts_wait_for_it() -> None:
    rules = "[[destination]]\nmatch = 'prices'\nlimit = 1000\nenforce = 'always'\n"
    resolved = loads(rules + channel(), "x").resolve("prices")
    assert (resolved.kind, resolved.fields["enforce"]) == ("topic", "off")
    assert resolved.fields["confirm"] == f"{link_id('prices>>quotes')} quotes"
    assert resolved.origins["enforce"] == resolved.origins["confirm"] == "prices@x:5"
    without = loads("flow_control = 'off'\n" + rules + channel()).resolve("prices")
    assert (without.fields["enforce"], without.fields["confirm"]) == ("off", "")


def test_a_limit_written_for_its_topic_is_a_trap_and_one_for_all_is_none() -> None:
    written = lint(loads("[[destination]]\nmatch = 'prices'\nlimit = 1000\n" + channel(), "x"))
    assert [(one.code, one.place, one.key) for one in written] == [("HG108", "x:3", "limit.bytes")]
    assert lint(loads("[[destination]]\nmatch = '#'\nlimit = 1000\n" + channel(), "x")) == []


async def test_a_plan_tells_which_topics_would_be_sent_and_which_no_more(one_url: str, namespace: str) -> None:
    async with headgate.connect(one_url, namespace=namespace) as client:
        await client.apply_policy(loads(channel()))
        planned = await plan(client, loads(channel(topics="['news']"), "x"))
    lines = list(planned.lines())
    assert "channel quotes: news -> 239.1.2.3:7000 would begin (x:1)" in lines
    assert "channel quotes: prices -> 239.1.2.3:7000 would end (it is no longer named)" in lines
    assert [one["from"] for one in planned.as_dict()["links"]["begin"]] == ["news"]
