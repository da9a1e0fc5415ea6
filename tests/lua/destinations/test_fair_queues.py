"""Queues whose keys take turns: what is delivered next, and that nothing is lost, doubled or left behind on the way."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headgate.core.limits.turns_over_slices import Turn
from headgate.core.links.calls import Put
from headgate.redis.keys import PARTS
from tests.lua.place import Consumer, Place, Producer
from tests.lua.route import LINK, Route
from tests.model.turns import STEP, Turns

pytestmark = pytest.mark.one_server

MESSAGES, FAIR, ROTA = (1 + PARTS.index(part) for part in ("messages", "fair", "rota"))


async def asked(place: Place, part: int, *words: Any) -> Any:
    key = place.address.shared[part]
    return await place.server.command(key, words[0], key, *words[1:])


async def send(producer: Producer, *keys: str, size: int = 1, expires_ms: int = 0) -> None:
    """Send a message for each key, in order."""
    account = producer.account(size * len(keys))
    most = producer.used_m + producer.returned_m + len(keys)
    assert producer.hear(await producer.call(replace(account, need_m=most, want_m=most))).code == "OK"
    await producer.publish(*[size] * len(keys), keys=" ".join(keys), expires_ms=expires_ms)


async def key_of(place: Place) -> dict[bytes, str]:
    """Return the key of each message that is stored."""
    entries = await asked(place, MESSAGES, "XRANGE", "-", "+")
    return {id_: dict(zip(fields[::2], fields[1::2], strict=True)).get(b"k", b"*").decode() for id_, fields in entries}


async def in_turn(place: Place, consumer: Consumer, *rooms: int) -> str:
    """Fetch so many at a time, and return the keys in the order in which they came."""
    keys, found = await key_of(place), ""
    for room in rooms:
        found += "".join(keys[id_] for id_ in await consumer.fetch(room))
    return found


async def is_whole(place: Place) -> None:
    """Compare what is in turn with what nobody has."""
    count, seen = await place.recount(), await place.look()
    assert count.equal, count
    holders = seen.holders.get("queue", {})
    members = await asked(place, FAIR, "ZRANGE", 0, -1)
    filed = Counter(int(member.rsplit(b" ", 1)[1].split(b"-")[0]) for member in members)
    sorted_up_to = int(seen.fields.get("sorted", 0))
    free = (
        seq for seq in seen.messages if holders.get(seq, "" if seq <= sorted_up_to else "unsorted") in ("", "~turn")
    )
    assert filed == Counter(free)


async def test_one_with_many_messages_delays_another_by_one_round(place: Place) -> None:
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"a" * 250)
    assert await in_turn(place, cid, 3) == "aaa"
    await send(ann, *"bc")
    assert sorted(await in_turn(place, cid, 3)) == ["a", "b", "c"]
    assert await in_turn(place, cid, 1, 1) == "aa"
    await is_whole(place)
    rest = [int(id_.split(b"-")[0]) for id_ in await cid.fetch()]
    assert len(rest) == 250 - 6
    assert rest == sorted(rest), "one key's are in order, the ninth before the tenth"
    await cid.accept(*cid.held[:256])
    assert await place.usage() == 0 + ann.held
    await is_whole(place)


async def test_turns_are_the_same_message_by_message_and_all_at_once(place: Place) -> None:
    await place.create(fair_by="group-id")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"aaaabbc")
    assert await in_turn(place, cid, 7) == "abcabaa"
    await send(ann, *"aaaabbc")
    assert await in_turn(place, cid, 1, 1, 1, 1, 1, 1, 1) == "abcabaa"


async def test_a_slice_says_how_much_of_a_turn_of_its_keys_it_gave(place: Place) -> None:
    """As the plain model counts it; a queue without slices says nothing, nor does an answer that is repeated."""
    await place.create(limit=10_000, fair_by="header:tenant", fair_weights="a=2")
    ann, cid = place.producer("ann"), await place.consumer("cid")

    model = Turns({"a": 2})

    async def turn(most: int, *, again: bool = False) -> Turn | None:
        cid.fetches += not again
        return (await cid.call(fetch=cid.fetches, max_messages=most, max_bytes=1 << 30)).turn

    await send(ann, *"aaabbbccc")
    for number, key in enumerate("aaabbbccc"):
        model.file(key, number)
    assert await turn(1) is None
    model.take(1)
    await place.change(of_slices="2")
    for most in (1, 1, 2, 3, 9):
        model.take(most)
        assert await turn(most) == (model.turned / STEP, True)
        assert model.turned
    assert await turn(9, again=True) == (0, True)
    assert await turn(9) == (0, True)


async def test_a_slice_without_keys_says_which_part_of_what_nobody_had_it_gave(place: Place) -> None:
    """Mutants: of all that is stored; it says so of the last, too, or of what it gives again."""
    await place.create(limit=10_000)
    ann, cid = place.producer("ann"), await place.consumer("cid")

    async def turn(fetch: int, most: int, *accepted: bytes) -> Turn | None:
        return (await cid.call(fetch=fetch, max_messages=most, max_bytes=1 << 30, accepted=accepted)).turn

    def approx(part: float) -> Any:
        return pytest.approx((part, False), abs=1e-6)

    await send(ann, *"aaaabbbb")
    assert await turn(1, 1) is None, "it is no slice"
    await place.change(of_slices="2")
    assert [await turn(2, 3), await turn(2, 3)] == [approx(3 / 7), None]
    assert await turn(3, 1, b"1-1", b"2-1", b"3-1", b"4-1") == approx(1 / 4)
    assert [await turn(4, 2), await turn(5, 1), await turn(6, 1)] == [approx(2 / 3), None, None]


async def test_what_empties_a_slice_counts_as_the_turns_of_all_keys_that_had_something(place: Place) -> None:
    """Mutant: of those alone that have something afterwards, as if one key had had all."""
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"abcdefgh")
    await place.change(of_slices="2")
    assert (await cid.call(fetch=1, max_messages=9, max_bytes=1 << 30)).turn == (1, True)


async def test_shares_follow_weights(place: Place) -> None:
    await place.create(limit=10_000, fair_by="header:tenant", fair_weights="gold-7=2;gold-*=4")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *["gold-1"] * 80, *["gold-7"] * 80, *["tin"] * 80)
    keys = await key_of(place)
    shares = Counter(keys[id_] for id_ in await cid.fetch(70))
    assert {key: round(share / 10) for key, share in shares.items()} == {"gold-1": 4, "gold-7": 2, "tin": 1}


async def test_a_key_that_comes_and_goes_gets_no_more_than_its_share(place: Place) -> None:
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"b" * 40)
    got = ""
    for _ in range(20):
        await send(ann, "a")
        got += await in_turn(place, cid, 1)
    assert abs(got.count("a") - got.count("b")) <= 1


async def test_a_key_that_comes_late_has_nothing_to_catch_up_with(place: Place) -> None:
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"b" * 40)
    await cid.fetch(20)
    await send(ann, *"a" * 20)
    assert await in_turn(place, cid, 10) == "ab" * 5


async def test_messages_without_a_key_are_one_key(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    assert (await ann.ask(100, window=100)).code == "OK"
    await ann.publish(1, 1, 1)
    await ann.publish(1, keys="x" * 129)
    await ann.publish(1, keys="a")
    assert (await in_turn(place, cid, 5)).count("*") == 4
    assert sorted(await in_turn(place, cid, 1)) == []


async def test_by_producer_each_session_has_its_turn(place: Place) -> None:
    await place.create(fair_by="producer")
    ann, bob, cid = place.producer("ann"), place.producer("bob"), await place.consumer("cid")
    await ann.send(1, 1, 1)
    await bob.send(1)
    assert await in_turn(place, cid, 4) == "annbobannann"


@pytest.mark.parametrize("failed", [False, True])
async def test_what_comes_back_goes_before_the_rest_of_its_key_and_in_its_turn(place: Place, failed: bool) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"aaabbb")
    first, *_ = await cid.fetch(2)
    back = {"failed" if failed else "released": [first]}
    assert (await cid.call(**back)).stale == 0
    await is_whole(place)
    assert (await cid.call(accepted=[first])).stale == 1, "nobody holds it"
    cid.fetches += 1
    answer = await cid.call(fetch=cid.fetches, max_messages=4, max_bytes=100)
    keys = await key_of(place)
    assert "".join(keys[id_] for id_, _, _ in answer.messages) == "abab"
    assert answer.messages[0][0] == first
    assert [attempts for _, _, attempts in answer.messages] == [int(failed), 0, 0, 0]
    await is_whole(place)


async def test_what_the_dead_held_takes_its_turn_again(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, dan = place.producer("ann"), await place.consumer("dan")
    await send(ann, *"aabb")
    await dan.fetch(3)
    await place.sweep(20_000)
    cid = await place.consumer("cid")
    assert Counter(await in_turn(place, cid, 4)) == Counter("aabb")
    await is_whole(place)


async def test_what_expires_is_in_no_ones_turn(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"aa", expires_ms=1000)
    await send(ann, *"aab")
    await cid.call(released=await cid.fetch(1))
    await place.wait(2000)
    await place.reap()
    await is_whole(place)
    assert (await place.look()).fields.get("returned", "0") == "0"
    assert await in_turn(place, cid, 9) == "baa", "its turn was over"
    await send(ann, *"aab", expires_ms=1000)
    await place.wait(2000)
    assert await cid.fetch(9) == [], "nobody swept, and it is over all the same"
    assert await place.usage() == 3 + ann.held
    await is_whole(place)


async def test_a_purge_leaves_nothing_in_turn(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"aabbb")
    await cid.call(released=await cid.fetch(1))
    await cid.fetch(1)
    await place.store.remove(place.address, everything=False)
    assert await asked(place, FAIR, "EXISTS") == 0
    await is_whole(place)
    await send(ann, "c")
    assert await in_turn(place, cid, 9) == "c"


async def switch(place: Place, fair_by: str) -> None:
    await place.change(fair_by=fair_by)


async def drained(cid: Consumer, most: int = 40) -> list[bytes]:
    got: list[bytes] = []
    for _ in range(most):
        got += (ids := await cid.fetch(256))
        if not ids:
            break
        await cid.accept(*ids)
    return got


async def test_what_was_there_before_is_one_key_and_sorted_a_piece_a_call(place: Place) -> None:
    await place.create(limit=10_000)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    for _ in range(4):
        await send(ann, *"a" * 250)
    old = await cid.fetch(10)
    await cid.call(released=old[:1])
    await switch(place, "header:tenant")
    await send(ann, *"bb")
    assert await cid.fetch(1) == old[:1], "what came back before goes first"
    got: list[bytes] = []
    while len(await key_of(place)) and b"b" not in await asked(place, ROTA, "ZRANGE", 0, -1):
        got += (ids := await cid.fetch(1))
        assert ids
    assert len(got) < 8, "a call sorts 256"
    assert "b" in await in_turn(place, cid, 1, 1)
    assert "~turn" not in (await place.look()).holders["queue"].values(), "what is sorted is nobody's"
    await is_whole(place)
    cid.held = []
    assert len(await drained(cid)) == 1002 - 10 - len(got) - 2


@pytest.mark.parametrize("rounds", [1, 2])
async def test_switched_off_what_is_in_turn_goes_first_and_nothing_twice(place: Place, rounds: int) -> None:
    await place.create(limit=10_000, fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    got: list[bytes] = []
    for _ in range(rounds):
        await send(ann, *"aaab")
        got += await cid.fetch(1)
        await switch(place, "")
        await send(ann, *"cd")
        await cid.call(released=got[:1]) if not got[1:] else None
        got += (ids := await cid.fetch(1))
        assert len(ids) == 1
        await switch(place, "header:tenant")
    await switch(place, "")
    got += await cid.fetch(256) + await cid.fetch(256)
    assert sorted(set(got)) == sorted(await key_of(place))
    assert len(got) == len(set(got)) + 1, "one was released"
    assert "fair_left" not in (await place.look()).fields
    await send(ann, "e")
    assert len(await cid.fetch(9)) == 1
    await is_whole(place)


async def test_more_keys_than_are_kept_go_as_those_without_one(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    names = [f"k{number}" for number in range(100_000)]
    for at in range(0, len(names), 10_000):
        pairs = [word for name in names[at : at + 10_000] for word in (0, name)]
        await asked(place, ROTA, "ZADD", *pairs)
    await send(ann, "late", "k7")
    members = [member.decode().split(" ")[0] for member in await asked(place, FAIR, "ZRANGE", 0, -1)]
    assert sorted(members) == ["*", "k7"]
    answer = await cid.call(fetch=1, max_messages=2, max_bytes=100)
    assert answer.again_ms == 1, "there is more than one call looks at"
    got = [id_ for id_, _, _ in answer.messages]
    assert len(got) < 2
    cid.fetches, calls = 1, 0
    while len(got) < 2:
        got += await cid.fetch(9)
        calls += 1
        assert calls < 500, "keys that have nothing are passed, some hundred a call"
    await is_whole(place)


async def test_turns_are_counted_anew_before_they_are_inexact(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"aaabbb")
    await asked(place, ROTA, "ZADD", 2**50 - 1, "a", 2**50, "b")
    got = await in_turn(place, cid, *[1] * 6)
    assert all(abs(got[:n].count("a") - got[:n].count("b")) <= 2 for n in range(6)), got
    assert all(score < 2**40 for score in map(float, (await asked(place, ROTA, "ZRANGE", 0, -1, "WITHSCORES"))[1::2]))


async def test_repeated_calls_have_the_effect_of_one(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    assert (await ann.ask(100, window=100)).code == "OK"
    account = ann.account(ahead=(3, 3))
    for _ in range(3):
        await ann.publish_as(account, ann.seq, 1, 1, 1, keys="a a b")
    await is_whole(place)
    answers = [await cid.call(fetch=1, max_messages=2, max_bytes=100) for _ in range(3)]
    assert [answer.code for answer in answers] == ["OK", "AGAIN", "AGAIN"]
    assert len({tuple(sorted(id_ for id_, _, _ in answer.messages)) for answer in answers}) == 1
    held = [id_ for id_, _, _ in answers[0].messages]
    answers = [await cid.call(fetch=2, max_messages=1, max_bytes=100, released=held[:1]) for _ in range(2)]
    assert answers[0].code == "OK"
    await is_whole(place)


async def test_without_the_rule_nothing_of_it_is_kept(place: Place) -> None:
    await place.create()
    ann, cid = place.producer("ann"), await place.consumer("cid")
    assert (await ann.ask(100, window=100)).code == "OK"
    await ann.publish(1, 1, keys="a b")
    assert await key_of(place) == dict.fromkeys(await cid.fetch(), "*")
    assert [await asked(place, part, "EXISTS") for part in (FAIR, ROTA)] == [0, 0]
    assert "sorted" not in (await place.look()).fields


async def test_a_topic_has_no_turns(place: Place) -> None:
    await place.create("topic", fair_by="header:tenant")
    cid, ann = await place.consumer("cid", "red"), place.producer("ann")
    await send(ann, *"aab")
    assert await in_turn(place, cid, 9) == "***"


async def test_its_own_subscription_stays_while_keys_take_turns(place: Place) -> None:
    await place.create(fair_by="header:tenant")
    assert await place.store.detach(place.address, "ann", "!queue", failed=False) == "BUSY"


async def test_a_link_takes_them_in_order_and_misses_none(place: Place, namespace: str) -> None:
    """It goes by numbers how far it got, so what came back below that gets a new one, and knows no turns."""
    route = await Route.make(place.server, namespace)
    source = route.source
    try:
        await switch(source, "header:tenant")
        ann, bob = source.producer("ann"), await source.consumer("bob")
        await send(ann, *"aaaabb", size=2)
        held = await bob.fetch(3)
        keys = await key_of(source)
        assert "".join(keys[id_] for id_ in held) == "aba"
        first = await route.read(messages=2)
        assert [entry.seq for entry in first.entries] == [3, 4]
        await bob.call(released=held)
        await is_whole(source)
        mark, got = 4, [entry.seq for entry in first.entries]
        while entries := (await route.read(mark, messages=2)).entries:
            got += [entry.seq for entry in entries]
            mark = got[-1]
            await is_whole(source)
        assert got == [3, 4, 5, 6, 7, 8], "what came back below the mark has new numbers"
        assert (await source.look()).messages == {}
        await route.check()
    finally:
        await route.close()


async def test_a_link_takes_what_came_back_before_the_rule_and_looks_on_past_what_others_hold(
    place: Place, namespace: str
) -> None:
    route = await Route.make(place.server, namespace)
    source = route.source
    try:
        ann, bob, cid = source.producer("ann"), await source.consumer("bob"), await source.consumer("cid")
        await send(ann, *"aaaaaaaa", size=2)
        back = await bob.fetch(1)
        await cid.fetch(5)
        await bob.call(released=back)
        await switch(source, "header:tenant")
        first = await route.read(messages=1)
        assert [entry.seq for entry in first.entries] == [1]
        assert (await source.look()).number("returned") == 0
        second = await route.read(1, messages=1)
        assert (second.entries, second.again_ms) == ((), 1)
        assert [entry.seq for entry in (await route.read(1, messages=1)).entries] == [7]
    finally:
        await route.close()


async def test_what_a_link_brings_has_its_turn(place: Place, namespace: str) -> None:
    route = await Route.make(place.server, namespace, fair_by="producer")
    target = route.target
    try:
        ann, cid = target.producer("ann"), await target.consumer("cid")
        assert (await ann.ask(3, window=3)).code == "OK"
        await ann.publish(1, 1, 1)
        await route.commit(need=2, want=8)
        assert (await route.commit(Put(1, b"xy", None, ("a",)), Put(2, b"z", None, ("a",)))).mark == 2
        assert (await in_turn(target, cid, 5)).replace("ann", "a").replace(LINK, "L") == "aLaLa"
        await is_whole(target)
        await route.check()
    finally:
        await route.close()


async def test_a_repair_puts_in_turn_anew_what_nobody_has(place: Place) -> None:
    """Of messages in hand, that came back, and that were there before the rule."""
    await place.create(limit=10_000)
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"xx")
    await place.change(fair_by="header:tenant")
    await send(ann, *"aaab")
    for _ in range(3):
        await send(ann, *["b"] * 200)
    held = await cid.fetch(4)
    await cid.call(released=held[:1])
    await is_whole(place)
    before = await asked(place, FAIR, "ZRANGE", 0, -1)
    assert (await place.recount()).stored[7:] == (603, 603)
    await asked(place, FAIR, "ZREM", *before[1:3])
    await asked(place, FAIR, "ZADD", 0, b"z" + before[1][1:], 0, "a 0000000000000099-1")
    count = await place.recount()
    assert not count.equal
    assert (count.stored[7:], count.counted[7:]) == ((603, 601), (603, 603))
    await place.store.recount(place.address, repair=True)
    assert await asked(place, FAIR, "ZRANGE", 0, -1) == before
    await is_whole(place)
    keys = await key_of(place)
    assert {keys[id_] for id_ in await cid.fetch(3)} == {"a", "b", "*"}


async def test_what_comes_back_before_all_is_sorted_stays_in_turn(place: Place) -> None:
    """A repair that took it out of turn would leave it with nobody for good."""
    await place.create()
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, *"ab")
    held = await cid.fetch(1)
    await place.change(fair_by="header:tenant")
    await cid.call(released=held)
    await is_whole(place)
    assert (await place.recount()).stored[7:] == (1, 1)
    await place.store.recount(place.address, repair=True)
    await is_whole(place)
    assert sorted(await cid.fetch()) == sorted(await key_of(place))
