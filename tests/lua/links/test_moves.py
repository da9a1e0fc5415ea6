"""One message by its id: deleted, or moved in steps of which any may be repeated, or be the last of its process."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from headgate.core.links.calls import Committed, Put
from headgate.redis.keys import Address, move_id
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.moves import MoveStore
from tests.lua.place import TTL_MS, Consumer, Place
from tests.support.rewriting import RewritingServer

pytestmark = pytest.mark.one_server


@dataclass
class Way:
    """A queue, where messages may go from there, and what somebody knows who moves one."""

    server: RewritingServer
    namespace: str
    fence: int = 0
    born: int = 0
    moves: MoveStore = field(init=False)
    links: LinkStore = field(init=False)
    source: Place = field(init=False)
    target: Place = field(init=False)

    def __post_init__(self) -> None:
        self.moves, self.links = MoveStore(self.server), LinkStore(self.server)
        self.source = Place(self.server, Address.of(self.namespace, "from"))
        self.target = Place(self.server, Address.of(self.namespace, "to"))
        self.link = move_id(self.source.address, self.target.address)
        self.target.sessions.add(self.link)
        self.source.sessions.add(self.link)

    async def begin(self, above: int = 0) -> int:
        """Begin; returns the number of what an earlier one took."""
        begun = await self.moves.begin(self.source.address, self.link, above=above)
        assert begun.code == "OK"
        assert begun.fence > max(self.fence, above)
        self.fence, self.born = begun.fence, begun.born
        return begun.taken

    async def take(self, id_: str, mark: int = 0, *, fence: int | None = None) -> tuple[str, str, Put | None]:
        code, holder, entry = await self.moves.take(
            self.source.address, self.link, id_, self.target.address, fence=fence or self.fence, mark=mark
        )
        put = Put(entry.seq, entry.body, entry.ttl_ms, entry.path, entry.later_ms) if entry is not None else None
        return code, holder, put

    async def commit(self, *puts: Put, prev: int = 0, need: int = 0, fence: int | None = None) -> Committed:
        return await self.links.commit(
            self.target.address, self.link, puts, fence=fence or self.fence, born=self.born, prev=prev, need=need,
            want=need, ttl_ms=TTL_MS,
        )  # fmt: skip

    async def end(self, mark: int, *, fence: int | None = None) -> str:
        return await self.moves.end(self.source.address, self.link, fence=fence or self.fence, mark=mark)

    async def move(self, id_: str) -> Put:
        """Do all of it."""
        await self.begin()
        mark = (await self.commit(need=int(id_.partition("-")[2]))).mark
        code, _, put = await self.take(id_, mark)
        assert code == "OK"
        assert put is not None
        assert (await self.commit(put, prev=mark)).mark == put.seq
        assert await self.end(put.seq) == "OK"
        return put

    async def ids(self) -> list[int]:
        return list((await self.source.look()).messages)

    async def stored(self) -> list[bytes]:
        return list((await self.target.look()).messages.values())


@pytest.fixture
async def way(server: RewritingServer, namespace: str) -> AsyncIterator[Way]:
    way = Way(server, namespace)
    await way.source.create(limit=1000)
    await way.target.create(limit=100)
    yield way
    for place in (way.source, way.target):
        count = await place.recount()
        assert count.equal, count
        await server.forget(place.address, *place.sessions)


async def discarded(place: Place, id_: str) -> tuple[str, str]:
    return await MoveStore(place.server).discard(place.address, id_)


# Deleting one.


async def test_one_message_is_deleted_and_its_bytes_are_free(way: Way) -> None:
    place = way.source
    await place.producer("ann").send(10, 20, 30)
    assert await discarded(place, "2-20") == ("OK", "20")
    seen = await place.look()
    assert (list(seen.messages), seen.pending.bytes, seen.pending.messages) == ([1, 3], 40, 2)
    assert await discarded(place, "2-20") == ("GONE", "")
    assert await discarded(place, "3-31") == ("GONE", "")


async def test_who_waits_for_room_gets_that_of_a_deleted_message(way: Way) -> None:
    place = way.source
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.send(990)
    await bob.ask(500)
    assert bob.held == 0
    await discarded(place, "1-990")
    assert (await place.look()).sessions["bob"]["granted"] == 500, "it need not ask again"


async def test_what_somebody_has_in_hand_is_neither_deleted_nor_moved(way: Way) -> None:
    place = way.source
    await place.producer("ann").send(10, 20)
    bob = await place.consumer("bob")
    (first,) = await bob.fetch(1)
    assert await discarded(place, "1-10") == ("HELD", "bob.1")
    await way.begin()
    assert (await way.take("1-10"))[:2] == ("HELD", "bob.1")
    await bob.call(released=[first])
    assert await discarded(place, "1-10") == ("OK", "10"), "it is back, and nobody has it"
    assert await bob.fetch() == [b"2-20"]


@pytest.mark.parametrize("settings", [{}, {"fair_by": "header:k"}, {"fair_by": "priority"}])
async def test_what_came_back_or_failed_or_waits_its_time_leaves_nothing_behind(
    way: Way, settings: dict[str, str]
) -> None:
    """Mutants: it is counted as returned still; it waits in turn still; its time comes still."""
    place = way.source
    await place.change(retry_delay_ms="1000", **settings)
    ann = place.producer("ann")
    bob = await place.consumer("bob")
    await ann.send(10, 20, keys="k k" if settings else "")
    await ann.send(30, later="5000", keys="k" if settings else "")
    await bob.call(released=[(await bob.fetch(1))[0]])
    (second,) = [one for one in await bob.fetch(2) if one == b"2-20"]
    await bob.call(released=[b"1-10"], failed=[second])
    for id_, size in (("1-10", "10"), ("2-20", "20"), ("3-30", "30")):
        assert await discarded(place, id_) == ("OK", size)
    seen = await place.look()
    assert (seen.messages, seen.pending.bytes, seen.returned) == ({}, 0, 0)
    for part in ("fair", "later", "redelivered", "expiry"):
        key = f"{place.address.key}:{part}".encode()
        assert not await place.server.command(key, "EXISTS", key), part
    await place.wait(6000)
    await place.reap()
    assert await bob.fetch() == []
    assert (await place.recount()).equal


async def test_a_topics_message_is_deleted_for_all_subscriptions_once(way: Way, namespace: str) -> None:
    """Mutant: what one subscription has settled is freed again."""
    place = Place(way.server, Address.of(namespace, "news"))
    await place.create("topic")
    red, blue = await place.consumer("bob", "red", durable=True), await place.consumer("cid", "blue", durable=True)
    await place.producer("ann").send(10, 20)
    await red.accept(*await red.fetch(1))
    assert await discarded(place, "1-10") == ("OK", "10")
    assert await blue.fetch() == [b"2-20"]
    assert await discarded(place, "2-20") == ("HELD", "cid.1")
    assert (await place.look()).pending.bytes == 20
    assert (await place.recount()).equal
    await way.server.forget(place.address, *place.sessions)


@pytest.mark.parametrize("kind", ["gate", "bucket"])
async def test_only_what_stores_messages_has_any(way: Way, namespace: str, kind: str) -> None:
    place = Place(way.server, Address.of(namespace, "other"))
    await place.wait(0)
    assert await discarded(place, "1-10") == ("UNKNOWN", "")
    await place.create(kind)
    assert await discarded(place, "1-10") == ("KIND", kind)
    moves = MoveStore(way.server)
    assert (await moves.begin(place.address, way.link)).code == "KIND"
    await way.server.forget(place.address)


# Moving one.


async def test_a_message_goes_through_all_steps(way: Way) -> None:
    await way.source.producer("ann").send(10, 20, 30)
    put = await way.move("2-20")
    assert await way.ids() == [1, 3]
    assert await way.stored() == [put.body]
    assert (await way.source.look()).pending.bytes == 40
    assert (await way.target.look()).pending.bytes == 20


async def test_while_it_is_on_its_way_nobody_gets_it_and_it_counts(way: Way) -> None:
    """Mutants: it is not pending; a recount does not see it; a purge frees it."""
    await way.source.producer("ann").send(10, 20)
    bob = await way.source.consumer("bob")
    await way.begin()
    assert (await way.take("1-10"))[0] == "OK"
    assert await bob.fetch() == [b"2-20"]
    assert (await way.source.look()).pending.bytes == 30
    assert (await way.source.recount()).equal
    assert await way.source.store.remove(way.source.address, everything=False) == (1, 20)
    assert (await way.source.look()).pending.bytes == 10
    assert (await way.source.recount()).equal
    assert await way.moves.under_way(way.source.address) == [(way.link, "to", way.source.now)]
    assert await way.end(0) == "OK"
    assert await way.moves.under_way(way.source.address) == []


async def test_what_the_target_does_not_have_is_the_last_of_its_queue_again(way: Way) -> None:
    """Mutants: its life, its time, its key or its path is forgotten."""
    ann = way.source.producer("ann")
    await ann.send(10, expires_ms=5000, later="2000")
    await ann.send(20)
    bob = await way.source.consumer("bob")
    await way.begin()
    put = (await way.take("1-10"))[2]
    assert put is not None
    assert (put.ttl_ms, put.later_ms) == (5000, 2000)
    assert await way.end(put.seq - 1) == "OK"
    assert await bob.fetch() == [b"2-20"], "the other's time has not come"
    await way.source.wait(2000)
    assert await bob.fetch() == [f"{put.seq + 1}-10".encode()]
    await way.source.wait(4000)
    await bob.call(released=[f"{put.seq + 1}-10".encode()])
    assert await way.ids() == [2], "its time is over"


async def test_keys_that_take_turns_have_it_back_too(way: Way) -> None:
    await way.source.change(fair_by="header:k")
    bob = await way.source.consumer("bob")
    await way.source.producer("ann").send(10, 20, 30, keys="x y y")
    await way.begin()
    assert (await way.take("1-10"))[0] == "OK"
    await way.end(0)
    stream = f"{way.source.address.key}:messages".encode()
    ((_, fields),) = await way.server.command(stream, "XREVRANGE", stream, "+", "-", "COUNT", 1)
    assert fields[2:] == [b"k", b"x"], "it has its key still"
    assert await bob.fetch() == [b"5-10", b"2-20", b"3-30"], "and its turn"


async def test_each_step_may_be_repeated(way: Way) -> None:
    """Mutants: a repeated take finds nothing, a repeated end frees twice."""
    await way.source.producer("ann").send(10, 20)
    await way.begin()
    await way.commit(need=10)
    taken = [await way.take("1-10") for _ in range(2)]
    assert taken[0] == taken[1]
    put = taken[0][2]
    assert put is not None
    for _ in range(2):
        assert (await way.commit(put)).mark == put.seq
    for _ in range(2):
        assert await way.end(put.seq) == "OK"
    assert (await way.source.look()).pending.bytes == 20
    assert await way.stored() == [put.body]


async def test_a_later_call_fences_an_earlier_one_off_at_both_ends(way: Way) -> None:
    """Mutants: an earlier call takes, ends, or puts back what the later one found out about."""
    await way.source.producer("ann").send(10, 20)
    await way.begin()
    before = way.fence
    await way.commit(need=10)
    put = (await way.take("1-10"))[2]
    assert put is not None
    assert await way.begin() == put.seq, "it is told what is on its way"
    assert (await way.take("2-20", fence=way.fence))[0] == "FENCED", "one after the other"
    assert (await way.commit()).mark == 0
    assert (await way.commit(put, fence=before)).code == "FENCED"
    assert await way.end(put.seq, fence=before) == "FENCED"
    assert (await way.take("1-10", fence=before))[0] == "FENCED"
    assert await way.end(0) == "OK"
    assert len(await way.ids()) == 2
    assert await way.stored() == []


async def test_who_takes_it_up_frees_what_the_target_has(way: Way) -> None:
    await way.source.producer("ann").send(10)
    await way.begin()
    await way.commit(need=10)
    put = (await way.take("1-10"))[2]
    assert put is not None
    await way.commit(put)
    assert await way.begin() == put.seq
    mark = (await way.commit()).mark
    assert mark == put.seq
    assert await way.end(mark) == "OK"
    assert await way.ids() == []
    assert await way.stored() == [put.body]


async def test_its_number_is_above_what_the_target_skips(way: Way) -> None:
    """A source that lost its last writes counts from below: its message would be skipped, and freed."""
    await way.source.producer("ann").send(10)
    await way.begin()
    put = (await way.take("1-10", mark=77))[2]
    assert put is not None
    assert put.seq > 77
    await way.end(77)


async def test_a_message_that_links_copy_is_not_moved(way: Way) -> None:
    """A link that copies would read it under its new number as another one. Mutant: it is taken."""
    await way.links.open(way.source.address, "link~copy~0000000000000000", fence=1, window="10/1000", copies=True)
    way.source.sessions.add("link~copy~0000000000000000")
    await way.source.producer("ann").send(10)
    await way.begin()
    assert (await way.take("1-10"))[0] == "COPIED"
    assert await way.ids() == [1]


async def test_one_is_moved_after_the_other(way: Way) -> None:
    """Mutant: who asks for another while one is on its way is given that one."""
    await way.source.producer("ann").send(10, 20)
    await way.begin()
    assert (await way.take("1-10"))[0] == "OK"
    assert (await way.take("2-20"))[0] == "FENCED"
    await way.end(0)


async def test_each_change_is_in_the_ledger_and_balances(way: Way) -> None:
    """As the audit reads it: what was purged, and where numbers jump."""
    await way.source.producer("ann").send(10, 20, 30)
    await discarded(way.source, "1-10")
    put = await way.move("2-20")
    key = f"{way.source.address.key}:ledger".encode()
    entries = [entry[1][1].decode() for entry in await way.server.command(key, "XRANGE", key, "-", "+")]
    found = [tuple(entry.split(",")[2:10]) for entry in entries if ",remove," in entry]
    assert found == [
        ("remove", "-", "10", "1", "0", "purge:10:1", "50", "2"),
        ("remove", way.link, "0", "0", "0", f"released:{way.link}:0", "50", "2"),
        ("remove", way.link, "20", "1", "0", f"purge:20:1;released:{way.link}:{put.seq}", "30", "1"),
    ]


async def test_numbers_go_on_behind_it(way: Way) -> None:
    ann = way.source.producer("ann")
    await ann.send(10)
    await way.begin()
    assert (await way.take("1-10"))[0] == "OK"
    await ann.send(20)
    assert await way.ids() == [3]
    await way.end(0)
    assert await way.ids() == [3, 4]


async def test_a_consumer_that_waits_is_woken_as_it_comes_back(way: Way) -> None:
    bob: Consumer = await way.source.consumer("bob")
    await way.source.producer("ann").send(10)
    await way.begin()
    assert (await way.take("1-10"))[0] == "OK"
    assert await bob.fetch() == []
    hungry = f"{way.source.address.key}:hungry".encode()
    assert await way.server.command(hungry, "ZCARD", hungry) == 1
    await way.end(0)
    assert await way.server.command(hungry, "ZCARD", hungry) == 0
