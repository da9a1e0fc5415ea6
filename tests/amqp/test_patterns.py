"""Receivers whose source address is a pattern: all topics that match, under one credit and one window."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from proton import Message
from proton.utils import LinkDetached

import headgate
from headgate.namespace.topics import PLACEHOLDER, TopicIndex
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.node.conditions import TooManyTopics, condition_of
from headgate_coordinator.node.ends.pattern_receiver import MOST_TOPICS, PatternReceiver
from headgate_coordinator.security.document import GrantTable, User
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.store import UserStore
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_users import call, grant, there
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import counts, drain, look
from tests.support.extent import share_of
from tests.support.waiting import wait_until

__all__ = ["call"]
pytestmark = pytest.mark.one_server

SETTLING: dict[str, Any] = {"autoaccept": True, "autosettle": True, "credit_window": 10}
DURABLE = {"address": "news.*", "durable": 2, "expiry_policy": "never"}


async def topics(client: headgate.Client, *names: str) -> None:
    for name in names:
        await client.apply(name, kind="topic")


async def send(client: headgate.Client, *names: str, count: int = 1) -> None:
    """Send that many messages to each, their body the topic's name and a number."""
    async with client.session("out") as session:
        for name in names:
            producer = await session.producer(name)
            await asyncio.gather(*(producer.send(f"{name} {number}") for number in range(count)))


def named(*names: str, count: int = 1) -> list[str]:
    return sorted(f"{name} {number}" for name in names for number in range(count))


async def got(rhea: Rhea, link: str, *bodies: str) -> bool:
    """Wait for just these messages, in any order."""
    await rhea.sees("message", len(bodies), link=link)
    return sorted(rhea.bodies(link)) == sorted(bodies)


async def empty(client: headgate.Client, *names: str) -> bool:
    return [await counts(client, name) for name in names] == [(0, 0)] * len(names)


async def held(client: headgate.Client, *names: str) -> int:
    """Return what consumers hold of these topics."""
    states = [one for name in names for one in (await look(client, name)).consumers.values()]
    return sum(int(one["delivered"]) - int(one["settled"]) for one in states)


async def joined(client: headgate.Client, *names: str) -> bool:
    """Return whether somebody has come to each of them, for whom a paused consumer may stand in until then."""
    consumers = [(await look(client, name)).consumers for name in names]
    return all(any(not one.startswith(PLACEHOLDER) for one in each) for each in consumers)


async def untaken(client: headgate.Client, name: str) -> bool:
    return await held(client, name) == 0


async def entries(client: headgate.Client) -> list[str]:
    return [entry.name for entry in await TopicIndex(client.store).entries(client.namespace)]


async def subscriptions(client: headgate.Client, *names: str) -> int:
    return sum([len((await look(client, name)).subscriptions) for name in names])


async def has_no(client: headgate.Client, *names: str) -> bool:
    """Sweep, as whoever uses the topics would; return whether there is no subscription left."""
    for name in names:
        await client.store.reap(Address.of(client.namespace, name))
    return await entries(client) == [] and not await subscriptions(client, *names)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    share_of(
        [("a.*", ["a.b", "a.new"]), ("a.#", ["a", "a.b", "a.b.c", "a.new"]), ("a.>", ["a.b", "a.b.c", "a.new"])], 2
    ),
)
async def test_topics_of_before_and_after_are_received_and_settled_where_they_are(
    rhea_there: Rhea, client: headgate.Client, pattern: str, matched: list[str]
) -> None:
    rhea, every = rhea_there, ["a", "a.b", "a.b.c", "a.new", "weather"]
    await topics(client, *every[:3], "weather")
    answer = await rhea.receiver("r", pattern, **SETTLING)
    assert (answer["address"], answer["capabilities"]) == (pattern, ["topic"])
    await topics(client, "a.new")
    await send(client, *every, count=20)
    assert await got(rhea, "r", *named(*matched, count=20))
    await wait_until(partial(empty, client, *every))
    rhea.do("close", link="r")
    await rhea.sees("receiver_close", link="r")
    await wait_until(partial(has_no, client, *every))


PARENTS = "include_parent = true\n[[destination]]\nmatch = 'a.>'\nmax_attempts = 3"


async def test_with_include_parent_the_name_before_it_is_taken_too(
    client: headgate.Client, rhea: Rhea, start_node: StartNode
) -> None:
    """By receivers over AMQP, by consumers of the SDK, by rules and by grants. Mutants: each of them does not."""
    await topics(client, "a", "a.b", "b")
    await client.apply_policy(loads(PARENTS))
    assert (await client.effective("a")).fields["max_attempts"] == "3"
    await grant(client, "ann", Action.CONSUME, match="a.>")
    await grant(client, "eve", Action.CONSUME, match="a.#")
    node = start_node("--plain-without-tls")
    await rhea.connect("c", node.port, username="ann", password="ANN")
    await rhea.receiver("no", "a.>", **SETTLING)
    (event,) = await rhea.sees("receiver_error", link="no")
    assert event["error"]["condition"] == "amqp:unauthorized-access"
    await rhea.connect("d", node.port, username="eve", password="EVE")
    answer = await rhea.receiver("r", "a.>?consumer_window=4", on="d", **SETTLING)
    assert answer["address"] == "a.#?consumer_window=4"
    async with client.session("s") as session:
        consumer = await session.consumer("a.>")
        await send(client, "a", "a.b", "b")
        assert await got(rhea, "r", *named("a", "a.b"))
        assert sorted(str(message.body) for message in await drain(consumer, 2)) == named("a", "a.b")


async def test_each_outcome_is_told_at_the_topic_of_its_message(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea, names = rhea_there, ("news.eu", "news.us")
    await topics(client, *names)
    await client.apply("news.us", dead_letter="graves")
    await rhea.receiver("r", "news.*")
    await send(client, "news.eu")
    rhea.do("credit", link="r", more=1)
    await rhea.sees("message", 1, link="r")
    await send(client, "news.us")
    rhea.do("credit", link="r", more=1)
    await rhea.sees("message", 2, link="r")
    rhea.do("settle", link="r", how="release", options={"delivery_failed": True})
    await wait_until(partial(untaken, client, "news.eu"))  # rhea tells two outcomes at a time as one
    rhea.do("settle", link="r", how="reject")
    await wait_until(partial(empty, client, "news.us"))
    assert await counts(client, "graves") != (0, 0)
    rhea.do("credit", link="r", more=1)
    await rhea.sees("message", 3, link="r")
    assert rhea.bodies("r") == ["news.eu 0", "news.us 0", "news.eu 0"]
    assert rhea.messages("r")[-1]["delivery_count"] == 1
    rhea.do("settle", link="r", how="accept")
    await wait_until(partial(empty, client, *names))


async def test_credit_is_for_all_topics_together(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea, names = rhea_there, [f"news.{number}" for number in range(5)]
    await topics(client, *names)
    await rhea.receiver("r", "news.*")
    await send(client, *names, count=10)
    seen = 0
    for more in (1, 7, 3):
        rhea.do("credit", link="r", more=more)
        seen += more
        await rhea.sees("message", seen, link="r")
        assert await held(client, *names) == len(rhea.messages("r")) == seen
    rhea.do("credit", link="r", more=100)
    assert await got(rhea, "r", *named(*names, count=10))
    assert {body.split()[0] for body in rhea.bodies("r")[:25]} == set(names)  # they take turns
    rhea.do("settle", link="r", how="accept", count=50)
    await wait_until(partial(empty, client, *names))


@pytest.mark.whole
async def test_the_window_is_for_all_topics_together(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea, names = rhea_there, ("news.eu", "news.us", "news.jp")
    await topics(client, *names)
    await rhea.receiver("r", "news.*?consumer_window=4")
    await send(client, *names, count=4)
    rhea.do("credit", link="r", more=100)
    for settled in (0, 4, 8):
        await rhea.sees("message", settled + 4, link="r")
        assert await held(client, *names) == 4
        rhea.do("settle", link="r", how="accept", count=4)
    await wait_until(partial(empty, client, *names))
    assert sorted(rhea.bodies("r")) == named(*names, count=4)


async def test_drain_is_answered_once_every_topic_was_looked_at(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea, names = rhea_there, ("news.eu", "news.us", "news.jp")
    await rhea.receiver("r", "news.*")

    async def drained(times: int, messages: int) -> None:
        rhea.do("drain", link="r", more=10)
        await rhea.sees("receiver_drained", times, link="r")
        assert len(rhea.messages("r")) == messages
        assert (await rhea.look("r"))["credit"] == 0

    await drained(1, 0)  # while there are no topics
    await topics(client, *names)
    await wait_until(partial(joined, client, *names))
    await drained(2, 0)
    await send(client, *names, count=2)
    await drained(3, 6)
    await send(client, *names, count=4)
    rhea.do("drain", link="r", more=10)
    await rhea.sees("receiver_drained", 4, link="r")
    assert len(rhea.messages("r")) == 16  # all its credit is used
    await drained(5, 18)


async def test_drain_is_answered_where_the_window_is_full(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea, names = rhea_there, ("news.eu", "news.us")
    await topics(client, *names)
    await rhea.receiver("r", "news.*?consumer_window=4")
    await send(client, *names, count=4)
    rhea.do("drain", link="r", more=10)
    await rhea.sees("receiver_drained", link="r")
    assert len(rhea.messages("r")) == 4


async def test_a_topic_that_is_removed_is_left_and_the_others_go_on(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await topics(client, "news.eu", "news.us")
    await rhea.receiver("r", "news.*", credit_window=0)
    rhea.do("credit", link="r", more=10)
    await send(client, "news.eu", "news.us")
    await rhea.sees("message", 2, link="r")
    await client.remove("news.eu")
    rhea.do("settle", link="r", how="accept", count=2)
    await wait_until(partial(empty, client, "news.us"))
    await send(client, "news.us", count=2)
    await rhea.sees("message", 4, link="r")
    await topics(client, "news.eu")
    await send(client, "news.eu")
    await rhea.sees("message", 5, link="r")
    assert rhea.told("receiver_error") == []


async def test_what_a_client_held_when_its_connection_broke_comes_again(
    rhea_there: Rhea, node: NodeProcess, client: headgate.Client
) -> None:
    rhea = rhea_there
    await topics(client, "news.eu", "news.us")
    await rhea.connect("d", node.port, container_id="reader")
    await rhea.receiver("sub", DURABLE, on="d", called="one")
    rhea.do("credit", link="one", more=4)
    await send(client, "news.eu", "news.us", count=3)
    await rhea.sees("message", 4, link="one")
    rhea.do("destroy", connection="d")
    await rhea.connect("e", node.port, container_id="reader")
    await rhea.receiver("sub", DURABLE, on="e", called="two", **SETTLING)
    assert await got(rhea, "two", *named("news.eu", "news.us", count=3))
    failed = [message["body"] for message in rhea.messages("two") if message.get("delivery_count")]
    assert sorted(failed) == sorted(rhea.bodies("one"))


async def test_a_durable_one_outlives_its_link_and_the_node_and_ends_with_a_close(
    start_node: StartNode, rhea: Rhea, client: headgate.Client
) -> None:
    await topics(client, "news.eu")
    first = start_node()
    await rhea.connect("c", first.port, container_id="reader")
    await rhea.receiver("sub", DURABLE, called="one", **SETTLING)
    await send(client, "news.eu")
    await rhea.sees("message", link="one")
    rhea.do("detach", link="one")
    await rhea.sees("receiver_close", link="one")
    assert await entries(client) == ["news.* reader.sub"]
    await topics(client, "news.us")  # while nobody receives
    await send(client, "news.eu", "news.us", count=2)
    first.kill9()
    await rhea.connect("d", start_node().port, container_id="reader")
    await rhea.receiver("sub", DURABLE, on="d", called="two", **SETTLING)
    assert await got(rhea, "two", *named("news.eu", "news.us", count=2))
    rhea.do("close", link="two")
    await rhea.sees("receiver_close", link="two")
    await wait_until(partial(has_no, client, "news.eu", "news.us"))


async def test_a_receiver_without_a_source_ends_it_on_topics_to_come_too(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    for again, name in enumerate(("", "news.eu")):  # without any topic, and with one
        if name:
            await topics(client, name)
        await rhea.receiver("sub", DURABLE, called=f"sub{again}")
        rhea.do("detach", link=f"sub{again}")
        await rhea.sees("receiver_close", link=f"sub{again}")
        assert await entries(client) == ["news.* c.sub"]
        answer = await rhea.receiver("sub", {}, called=f"back{again}")
        assert answer["address"] == "news.*"
        rhea.do("close", link=f"back{again}")
        await rhea.sees("receiver_close", link=f"back{again}")
        assert await entries(client) == []
    await topics(client, "news.us")
    assert await subscriptions(client, "news.eu", "news.us") == 0


@pytest.mark.parametrize(
    ("source", "condition", "says"),
    [
        ({"address": "q.*", "distribution_mode": "copy"}, "amqp:not-implemented", "browse"),
        ({"address": "q.*", "capabilities": ["topic", "shared"]}, "amqp:not-implemented", "shared"),
        ({"address": "q.*", "capabilities": ["queue"]}, "amqp:not-implemented", "queues"),
        ({"address": "q.*", "durable": 2}, "amqp:not-allowed", "'q.one'"),
        ({"address": "q.#.x"}, "amqp:invalid-field", "last word"),
        ({"address": "q*"}, "amqp:invalid-field", "whole word"),
        ({"address": "x.*?no.such=1"}, "amqp:invalid-field", "no.such"),
    ],
)
async def test_what_a_pattern_is_not_for_is_refused_and_leaves_nothing(
    rhea_there: Rhea, client: headgate.Client, source: dict[str, Any], condition: str, says: str
) -> None:
    rhea = rhea_there
    await client.apply("q.one", kind="queue")
    await rhea.receiver("r", source)
    (event,) = await rhea.sees("receiver_error", link="r")
    assert event["error"]["condition"] == condition
    assert says in event["error"]["description"]
    assert await entries(client) == []
    await rhea.receiver("fine", "news.*")


async def test_queues_for_replies_are_in_no_pattern(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.receiver("replies", {"dynamic": True})
    for name, pattern in enumerate(("#", "*", ">")):
        await rhea.receiver(f"{name}", pattern, **SETTLING)
    assert rhea.told("receiver_error") == []
    await topics(client, "news")
    await send(client, "news")
    for name in range(3):
        await rhea.sees("message", link=f"{name}")


async def test_a_user_needs_to_consume_from_all_that_matches(
    client: headgate.Client, start_node: StartNode, call: Callable[..., object]
) -> None:
    await topics(client, "news.eu")
    await grant(client, "ann", Action.CONSUME, match="news.*")
    connection: Any = await there(call, start_node("--plain-without-tls"), "ann")
    for refused in ("news.#", "news.>", "*.eu", "#", "reply~x.*"):
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            await there(connection.create_receiver, refused)
    receiver = await there(connection.create_receiver, "news.*", credit=5)
    await send(client, "news.eu")
    message: Message = await there(receiver.receive, timeout=10)
    assert message.body == "news.eu 0"
    await there(receiver.accept)
    with pytest.raises(LinkDetached):
        await there(connection.create_sender, "news.*")

    def narrow(users: dict[str, User]) -> None:
        grants = [GrantTable(actions=[Action.CONSUME], match="news.eu")]
        users["ann"] = User(password_hash=users["ann"].password_hash, grants=grants)

    await UserStore(client.store.server, client.namespace).change(narrow)
    with pytest.raises(LinkDetached, match="unauthorized-access"):
        await there(receiver.receive, timeout=10)
    await wait_until(partial(has_no, client, "news.eu"))


async def test_durable_ones_of_two_users_are_two(client: headgate.Client, start_node: StartNode, rhea: Rhea) -> None:
    await topics(client, "news.eu")
    for user in ("ann", "bob"):
        await grant(client, user, Action.CONSUME)
    node = start_node("--plain-without-tls")
    for user in ("ann", "bob"):
        await rhea.connect(user, node.port, container_id="same.id", username=user, password=user.upper())
        await rhea.receiver("sub", DURABLE, on=user, called=user, **SETTLING)
    await send(client, "news.eu", count=3)
    for user in ("ann", "bob"):
        assert await got(rhea, user, *named("news.eu", count=3))
    names = sorted(await entries(client))
    assert len(names) == 2
    assert all(name.startswith("news.* amqp~") and name.endswith("same%252Eid.sub") for name in names), names
    rhea.do("detach", link="bob")
    await rhea.sees("receiver_close", link="bob")
    await rhea.receiver("sub", {}, on="bob", called="back")
    rhea.do("close", link="back")
    await rhea.sees("receiver_close", link="back")
    assert await entries(client) == names[:1]


@pytest.mark.whole
async def test_an_sdk_and_a_client_share_nothing_unless_the_name_is_one(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await topics(client, "news.eu")
    async with client.session("in") as session:
        consumer = await session.consumer("news.*", subscription="c.sub", durable=True)
        await rhea.receiver("alone", "news.*", **SETTLING)
        await send(client, "news.eu", count=5)
        assert len(await drain(consumer, 5)) == 5
        assert await got(rhea, "alone", *named("news.eu", count=5))


def test_one_connection_is_on_so_many_topics_by_pattern() -> None:
    def consumer(on: int, *, ends: dict[Any, Any]) -> Any:
        topics: Any = SimpleNamespace(
            address=Address("n", "news.*", "", ()),
            subscription="s",
            durable=False,
            feeds={str(number): None for number in range(on)},
        )
        outlet: Any = SimpleNamespace(connection=SimpleNamespace(ends=ends), started=True)
        one = PatternReceiver(outlet, topics)
        one.reach = on
        ends[len(ends)] = outlet
        return one

    ends: dict[Any, Any] = {"other": SimpleNamespace()}
    first, second = consumer(MOST_TOPICS - 2, ends=ends), consumer(1, ends=ends)
    second.joining(["0", "b"])
    with pytest.raises(TooManyTopics, match=f"at most {MOST_TOPICS}") as caught:
        second.joining(["b", "c"])
    assert condition_of(caught.value)[0] == "amqp:resource-limit-exceeded"
    assert first.reach == MOST_TOPICS - 2
