"""What a fetch delivers: within the window, in order, what came back first; and how consumers go."""

import pytest

from headgate import TooManySubscriptions
from tests.lua.place import Consumer, Place

pytestmark = pytest.mark.docker


async def test_messages_come_in_the_order_in_which_they_were_accepted(place: Place) -> None:
    await place.create()
    ann, zoe, bob = place.producer("ann"), place.producer("zoe"), await place.consumer("bob")
    for producer in (zoe, ann, zoe):
        await producer.send(10, 11)
    assert await bob.fetch(4) == [b"1-10", b"2-11", b"3-10", b"4-11"]
    assert await bob.fetch() == [b"5-10", b"6-11"]


async def test_a_window_of_messages_is_never_exceeded(place: Place) -> None:
    """Mutant: one fetch takes as many as there are."""
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(*[10] * 8)
    assert [len(await bob.fetch(count)) for count in (3, 1, 9)] == [3, 1, 4]


async def test_a_window_of_bytes_is_not_exceeded_by_what_fits_beside_others(place: Place) -> None:
    """Mutant: the largest stored message is taken to be one byte."""
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(30, 30, 30, 30)
    assert [len(await bob.fetch(9, size)) for size in (65, 59, 30)] == [2, 1, 1]


async def test_a_fetch_that_its_bytes_cut_short_says_that_there_is_more(place: Place) -> None:
    """Mutant: the client looks again when it is told of new messages, or a second later."""
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(30, 30, 30)
    answers = [await bob.call(fetch=n, max_messages=9, max_bytes=50) for n in (1, 2, 3, 4)]
    assert [(len(answer.messages), answer.again_ms) for answer in answers] == [(1, 1), (1, 1), (1, 1), (0, 0)]


async def test_a_message_larger_than_the_window_comes_alone(place: Place) -> None:
    """Mutant: what does not fit is not delivered."""
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(90, 90)
    assert [len(await bob.fetch(9, 10)) for _ in range(3)] == [1, 1, 0]


async def test_what_came_back_is_delivered_before_what_is_new(place: Place) -> None:
    """Mutant: what came back is not looked at."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(10, 10, 10, 10)
    first = await bob.fetch(3)
    await bob.call(released=[first[2]], failed=[first[0]])
    cid.fetches = 1
    answer = await cid.call(fetch=1, max_messages=9, max_bytes=99)
    assert [(identifier, failures) for identifier, _, failures in answer.messages] == [
        (first[0], 1),
        (first[2], 0),
        (b"4-10", 0),
    ]


async def test_what_came_back_respects_the_window_of_bytes(place: Place) -> None:
    """Mutant: all that came back is delivered at once."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(40, 40, 40)
    await bob.call(released=await bob.fetch())
    assert [len(await cid.fetch(9, size)) for size in (90, 10, 99)] == [2, 1, 0]


async def test_each_subscription_of_a_topic_gets_every_message(place: Place) -> None:
    await place.create("topic")
    red, blue = await place.consumer("bob", "red"), await place.consumer("cid", "blue")
    ann = place.producer("ann")
    await ann.send(10, 11)
    late = await place.consumer("dan", "late")
    await ann.send(12)
    everything = [b"1-10", b"2-11", b"3-12"]
    assert [await c.fetch() for c in (red, blue, late)] == [everything, everything, everything[2:]]


async def test_consumers_of_one_subscription_share_its_messages(place: Place) -> None:
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(10, 10, 10)
    assert (await bob.fetch(1), await cid.fetch(1), await bob.fetch()) == ([b"1-10"], [b"2-10"], [b"3-10"])


async def test_a_topic_without_subscriptions_stores_nothing(place: Place) -> None:
    """Mutant: `publish` stores what nobody will read."""
    await place.create("topic")
    assert (await place.producer("ann").send(10)).first == 1
    assert await place.usage() == 0


async def test_a_durable_subscription_outlives_its_consumers(place: Place) -> None:
    """Mutant: `drain_consumer` ends every subscription with its last consumer."""
    await place.create("topic")
    durable, fleeting = await place.consumer("bob", "keep", durable=True), await place.consumer("cid", "go")
    await durable.detach()
    await fleeting.detach()
    await place.reap()
    await place.producer("ann").send(10)
    assert list((await place.look()).subscriptions) == ["keep"]
    again = Consumer(place, "dan", "keep")
    place.sessions.add("dan")
    assert await again.attach() == "OK"
    assert await again.fetch() == [b"1-10"]


async def test_a_subscription_with_consumers_is_not_removed(place: Place) -> None:
    """Mutant: `detach` without BUSY."""
    await place.create("topic")
    await place.consumer("bob", "red")
    assert await place.store.detach(place.address, "ann", "!red", failed=False) == "BUSY"


async def test_closing_a_consumer_gives_back_what_it_holds_without_blame(place: Place) -> None:
    """Mutant: `detach` counts what it gives back as failed."""
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    await place.producer("ann").send(10, 10)
    ids = await bob.fetch()
    assert await bob.detach() == "OK"
    cid.fetches = 1
    answer = await cid.call(fetch=1, max_messages=9, max_bytes=99)
    assert [(identifier, failures) for identifier, _, failures in answer.messages] == [(i, 0) for i in ids]


async def test_closing_a_consumer_that_holds_much_takes_several_calls(place: Place) -> None:
    """Mutant: `detach` says that it is done when it is not."""
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for _ in range(20):
        await ann.send(*[1] * 8)
    await bob.fetch()
    codes: list[str] = []
    while not codes or codes[-1] == "MORE":
        codes.append(await bob.detach())
    assert codes == ["MORE", "MORE", "OK"]
    seen = await place.look()
    assert (seen.returned, seen.failures, seen.consumers) == (160, {}, {})


async def test_a_gate_has_no_consumers(place: Place) -> None:
    await place.create("gate")
    assert await Consumer(place, "bob", "queue").attach() == "KIND"


@pytest.mark.one_server
async def test_a_topic_has_so_many_subscriptions_and_no_more(place: Place) -> None:
    """Mutant: `attach` counts nobody."""
    await place.create("topic")
    assert await Consumer(place, "first", "sub7").attach(durable=True) == "OK"
    key = place.address.shared[0]
    await place.server.command(key, "HSET", place.address.key, "subscriptions", 999)
    assert await Consumer(place, "last", "sub8").attach(durable=True) == "OK"
    with pytest.raises(TooManySubscriptions, match="1000 subscriptions"):
        await Consumer(place, "late", "one-more").attach(durable=True)
    assert await Consumer(place, "late", "sub7").attach() == "OK"
    await place.server.command(key, "HSET", place.address.key, "subscriptions", 2)


@pytest.mark.one_server
async def test_a_topic_says_how_many_subscriptions_it_may_have(place: Place) -> None:
    """Mutant: the default holds whatever it says."""
    await place.create("topic", max_subscriptions="2")
    for number in (1, 2):
        assert await Consumer(place, f"c{number}", f"sub{number}").attach() == "OK"
    with pytest.raises(TooManySubscriptions, match="2 subscriptions"):
        await Consumer(place, "late", "sub3").attach()
    await place.change(max_subscriptions="3")
    assert await Consumer(place, "late", "sub3").attach() == "OK"
    await place.change(max_subscriptions="1")
    assert await Consumer(place, "more", "sub3").attach() == "OK", "those that there are stay"


async def test_the_ledger_misses_no_number_and_tells_the_counters(place: Place) -> None:
    """Mutant: `write_ledger` skips numbers."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 20)
    await bob.accept(*await bob.fetch(1))
    await ann.ask(window=50)
    await ann.leave()
    ledger = f"{place.address.key}:ledger".encode()
    entries = await place.server.command(ledger, "XRANGE", ledger, "-", "+")
    assert [identifier for identifier, _ in entries] == [b"%d-0" % (n + 1) for n in range(len(entries))]
    rows = [text.decode().split(",") for _, (_, text) in entries]
    assert [row[2] for row in rows] == ["apply", "attach", "acquire", "publish", "settle", "settle", "acquire", "leave"]
    assert {len(row) for row in rows} == {13}
    assert [row[8:12] for row in rows][3:] == [
        ["30", "2", "0", "6"],
        ["30", "2", "0", "6"],
        ["20", "1", "0", "6"],
        ["20", "1", "50", "8"],
        ["20", "1", "0", "0"],
    ]
    seen = await place.look()
    assert rows[-1][8:12] == [seen.fields[name] for name in (
        "pending_bytes", "pending_messages", "leased_bytes", "leased_messages"
    )]  # fmt: skip


async def test_a_ledger_that_is_off_is_not_written(place: Place) -> None:
    """Mutant: `write_ledger` does not look at its level."""
    await place.create(ledger="off")
    await place.producer("ann").send(10)
    ledger = f"{place.address.key}:ledger".encode()
    assert await place.server.command(ledger, "EXISTS", ledger) == 0


async def test_who_waits_gets_one_of_what_came_back_and_then_the_rest(place: Place) -> None:
    """Mutant: whoever comes first takes all of it, while others that were woken too get nothing."""
    await place.create()
    bob, cid, dan = await place.consumer("bob"), await place.consumer("cid"), await place.consumer("dan")
    await place.producer("ann").send(*[10] * 6)
    await bob.call(released=await bob.fetch(6))
    answers = [
        await one.call(fetch=number, max_messages=9, max_bytes=999, waits=waits)
        for one, number, waits in ((cid, 1, 1), (dan, 1, 2), (cid, 2, 0))
    ]
    assert [(len(answer.messages), answer.again_ms) for answer in answers] == [(1, 1), (2, 1), (3, 0)]


async def test_who_finds_nothing_is_told_whether_others_hold_messages(place: Place) -> None:
    await place.create()
    bob, cid = await place.consumer("bob"), await place.consumer("cid")
    assert not (await cid.call(fetch=1, max_messages=9, max_bytes=99)).beside
    await place.producer("ann").send(10)
    ids = await bob.fetch()
    assert not (await bob.call(fetch=2, max_messages=9, max_bytes=99)).beside, "all that is held is its own"
    assert (await cid.call(fetch=2, max_messages=9, max_bytes=99)).beside
    await bob.accept(*ids)
    assert not (await cid.call(fetch=3, max_messages=9, max_bytes=99)).beside
