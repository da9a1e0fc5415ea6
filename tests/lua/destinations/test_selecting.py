"""Subscriptions that select: what senders say is not for one was never its own, and what is for none is not kept."""

import pytest

from headgate.errors import InvalidValue
from tests.lua.place import Consumer, Place

pytestmark = pytest.mark.docker


async def listed(place: Place) -> dict[str, tuple[str, str]]:
    """Return the id and the selector of each subscription that senders judge for, by its name."""
    snapshot = await place.store.snapshot(place.address)
    assert snapshot is not None
    entries = [entry.split("=") for entry in snapshot.fields.get("selectors", "").split()]
    return {name: (id_, selector) for name, id_, selector in entries}


async def for_all_but(place: Place, *subscriptions: str, count: int = 1) -> str:
    """Return what a sender says of messages that are not for these."""
    known = await listed(place)
    named = ",".join(f"{name}={known[name][0]}" for name in subscriptions)
    return f"{named} {' '.join([str((1 << len(subscriptions)) - 1)] * count)}"


async def attached(consumer: Consumer, **arguments: str) -> str:
    """Attach, again and again while the subscription is being removed."""
    while (code := await consumer.attach(durable=True, **arguments)) == "GONE":
        pass
    return code


async def test_what_is_not_for_a_subscription_waits_for_the_others_alone(
    place: Place,
) -> None:
    """Mutants: it is delivered; it waits for the one that does not want it; it goes when the first has settled it."""
    await place.create("topic")
    red = await place.consumer("bob", "red", durable=True, selector="a")
    blue, all_ = await place.consumer("cid", "blue", selector="b"), await place.consumer("dan", "all")
    ann = place.producer("ann")
    await ann.send(10, 11, 12, unwanted=f"{(await for_all_but(place, 'red', 'blue')).split()[0]} 1 0 2")
    for consumer, ids in ((red, [b"2-11", b"3-12"]), (blue, [b"1-10", b"2-11"])):
        assert await consumer.fetch() == ids
        await consumer.accept(*ids)
    assert (await place.look()).pending.bytes == 33
    assert await all_.fetch() == [b"1-10", b"2-11", b"3-12"]
    for id_, left in ((b"2-11", 22), (b"1-10", 12), (b"3-12", 0)):
        await all_.accept(id_)
        assert (await place.look()).pending.bytes == left
    assert await place.usage() == ann.held


async def test_what_is_for_nobody_is_not_kept_and_has_its_number(place: Place) -> None:
    """Mutants: it is pending all the same; it is stored; it waits for its time."""
    await place.create("topic")
    red = await place.consumer("bob", "red", durable=True, selector="a")
    ann, rest = place.producer("ann"), (await for_all_but(place, "red")).split()[0]
    await ann.send(10, 11, 12, unwanted=f"{rest} 1 0 1", later="100 100 100")
    seen = await place.look()
    assert (seen.pending.bytes, seen.pending.messages) == (11, 1)
    snapshot = await place.store.snapshot(place.address, entries=1)
    assert snapshot is not None
    assert "purge:-:22:2" in snapshot.ledger[0]
    await ann.send(13, 14, unwanted=f"{rest} 0 1")
    await place.wait(100)
    await place.reap()
    assert sorted(await red.fetch()) == [b"2-11", b"4-13"]
    await red.accept(b"2-11", b"4-13")
    assert await place.usage() == ann.held == 0


@pytest.mark.parametrize("said", ["red=1 1", "blue={} 1", "red={},red={} 2", "red={} 2", "red={}"])
async def test_what_does_not_fit_what_is_selected_now_is_not_heeded(place: Place, said: str) -> None:
    """Of another time, of another subscription, of one that is named twice, or of none. Mutants: it is believed."""
    await place.create("topic")
    red, all_ = await place.consumer("bob", "red", selector="a"), await place.consumer("cid", "all")
    id_ = (await listed(place))["red"][0]
    await place.producer("ann").send(10, unwanted=said.format(id_, id_))
    assert await red.fetch() == await all_.fetch() == [b"1-10"]
    await red.accept(b"1-10")
    assert (await place.look()).pending.bytes == 10
    await all_.accept(b"1-10")
    assert await place.usage() == 0


async def test_another_selector_makes_a_subscription_anew_once_nobody_consumes(place: Place) -> None:
    """Mutants: it keeps what came before; it is taken from those who consume; nothing is an other one."""
    await place.create("topic")
    bob = await place.consumer("bob", "red", durable=True, selector="a")
    await place.producer("ann").send(10)
    cid = place.reader("cid", "red")
    for other in ("b", ""):
        assert await cid.attach(durable=True, selector=other) == "SELECTOR"
    assert [await cid.attach(durable=True, selector=same) for same in ("a", "=")] == ["OK", "OK"]
    for consumer in (bob, cid):
        await consumer.detach()
    assert await attached(cid, selector="a") == "OK"
    assert (await place.look()).pending.bytes == 10
    await cid.detach()
    for other, left in (("b", 0), ("", 0), ("c", 10)):  # one that took all keeps what it has
        assert await attached(cid, selector=other) == "OK"
        assert await place.usage() == left
        assert [word for _, word in (await listed(place)).values()] == [other] * bool(other)
        await place.producer(f"ann-{other}").send(10)
        await cid.detach()


async def test_one_that_is_removed_settles_only_what_was_for_it(place: Place) -> None:
    """Mutants: what another one waits for goes with it; what came after it ends is its own; the list keeps it."""
    await place.create("topic")
    red, all_ = await place.consumer("bob", "red", durable=True, selector="a"), await place.consumer("cid", "all")
    other = await place.consumer("dan", "other")
    await place.producer("ann").send(10, 11, unwanted=f"{(await for_all_but(place, 'red')).split()[0]} 1 0")
    await red.detach()
    late = await for_all_but(place, "red")
    while await place.store.detach(place.address, "bob", "!red", failed=False) == "MORE":
        pass
    assert await listed(place) == {}
    await place.producer("zoe").send(12, unwanted=late)
    for consumer in (all_, other):
        assert await consumer.fetch() == [b"1-10", b"2-11", b"3-12"]
    await all_.accept(*all_.held)
    assert (await place.look()).pending.bytes == 33
    await other.accept(*other.held)
    assert await place.usage() == 0


async def test_a_few_are_listed_and_a_long_one_is_not(place: Place) -> None:
    """Mutants: all are; the list tells nobody that it has changed."""
    await place.create("topic", limit="unlimited")
    await place.consumer("s", "long", selector="#" + "0" * 64)
    consumers = [await place.consumer(f"s{number}", f"n{number}", selector="a") for number in range(18)]
    assert set(await listed(place)) == {f"n{number}" for number in range(16)}
    await consumers[3].detach()
    await place.reap()
    await place.consumer("t", "next", selector="a")
    assert set(await listed(place)) == {*(f"n{number}" for number in range(16) if number != 3), "next"}
    assert await place.reader("u", "n17").attach(selector="b") == "SELECTOR"


@pytest.mark.parametrize("word", ["x red=1=FALSE", "x=1", "==", "x y", "a" * 2001, "##", "x,y", "a\nb"])
async def test_nobody_lists_what_another_subscription_selects(place: Place, word: str) -> None:
    """One who could had senders believe it, and read hundreds more than a topic lists."""
    await place.create("topic")
    with pytest.raises(InvalidValue, match=r"ARGUMENT attach|selector is"):
        await place.reader("eve", "evil").attach(selector=word)
    assert await listed(place) == {}


async def test_a_queue_selects_nothing(place: Place) -> None:
    await place.create()
    assert await (await place.consumer("bob", selector="a")).attach(selector="b") == "OK"
    assert await listed(place) == {}
    await place.producer("ann").send(10, unwanted="queue=1 1")
    assert await place.reader("bob", "queue").fetch() == [b"1-10"]
