"""Links from and to destinations that spool: payloads are forwarded, never what stands for them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.core.links.calls import Commit, Committed, Entry, Open, Opened, Read
from headgate.core.links.trouble import SPOOLS
from headgate.core.segment import Reference
from headgate.errors import CoordinatorUnavailable
from headgate.policy import loads
from headgate.redis.keys import Address, link_id
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links import forwarder
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.rules import Forwarding, Refusal, StoreTurn
from headgate_coordinator.links.spooled_reads import SpooledReads
from headgate_coordinator.links.spooled_writes import SpooledWrites
from headgate_coordinator.security.policy_reach import PolicyReach
from headgate_coordinator.service.spool_sweep import SpoolSweep
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.channels import Group, collecting, opened
from tests.links.policy.test_bridges import bridges, consume, fields, owner, rule
from tests.links.sites import SiteOf
from tests.support.leaks import delete_namespace
from tests.support.spooled import PAYLOAD, body, fill, first_segment, number_of, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
COUNT = 200
MEMORY = 60_000


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def node(redis_url: str, cleanup_namespace: str) -> Iterator[NodeProcess]:
    with nodes(redis_url, cleanup_namespace, 1, "--ttl", 2) as (started,):
        yield started


async def stored(client: headgate.Client, name: str) -> list[bytes | str]:
    return [browsed.body async for browsed in client.browse(name)]


async def there(client: headgate.Client, name: str, bodies: list[bytes]) -> None:
    async def same() -> bool:
        return await stored(client, name) == bodies

    await wait_until(same, timeout=80)


@pytest.mark.whole  # what is lost and what is swept comes in order too
async def test_payloads_are_forwarded_in_order(client: headgate.Client, node: NodeProcess, tmp_path: Path) -> None:
    """Breaks when what was read at the source is committed as it is."""
    await spooling(client, tmp_path, memory=MEMORY)
    assert await fill(client, COUNT) > COUNT // 2
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    await there(client, "billing", [body(n) for n in range(COUNT)])
    assert await references(client, "billing") == []
    await swept(tmp_path)


async def test_from_slices_that_spool_to_slices_that_do(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """Mutant: the payload of a message at a slice is looked for at the first."""
    await spooling(client, tmp_path, memory=MEMORY, slices=3)
    for sender in range(3):
        async with client.session(f"s{sender}") as session:
            producer = await session.producer("orders")
            await asyncio.gather(*(producer.send(body(n), headers={"of": str(sender)}) for n in range(60)))
    assert await references(client, "orders#1")
    await spooling(client, tmp_path, "billing", memory=MEMORY // 4, slices=3)
    await client.apply_policy(loads(bridges(("orders", "billing"))))

    async def there() -> int:
        return len([message async for message in client.browse("billing")]) == 180

    await wait_until(there, timeout=80)
    came: dict[str, list[int]] = {}
    async with client.session("out") as session, asyncio.timeout(80):
        consumer = await session.consumer("billing")
        for _ in range(180):
            message = await anext(consumer)
            came.setdefault(str(message.headers["of"]), []).append(number_of(message.body))
            await message.accept()
    assert came == {str(sender): [*range(60)] for sender in range(3)}
    await swept(tmp_path)


@pytest.mark.whole
async def test_the_target_has_room_for_payloads(client: headgate.Client, node: NodeProcess, tmp_path: Path) -> None:
    """Breaks when a reference's bytes are asked for and a payload is put there."""
    await spooling(client, tmp_path, memory=MEMORY)
    await fill(client, COUNT)
    await client.apply_policy(loads(bridges(("orders", "billing"), more=rule("billing", "limit = 9000"))))

    async def full() -> bool:
        return int((await fields(client, "billing")).get("pending_bytes", 0)) > 8 * PAYLOAD

    await wait_until(full, timeout=80)
    assert await consume(client, "billing", COUNT) == [body(n) for n in range(COUNT)]
    assert int((await fields(client, "billing"))["peak_bytes"]) <= 9000


async def test_a_target_that_spools_takes_all_though_its_memory_is_full(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """Mutants: a link waits for memory alone; reads no further than its credit; stores again what it sent before."""
    await spooling(client, tmp_path, memory=MEMORY)
    await spooling(client, tmp_path, "billing", memory=12_000)
    await fill(client, COUNT)
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    await wait_until(lambda: is_empty(client, "orders"), timeout=80)
    state = await fields(client, "billing")
    assert (state["pending_messages"], int(state["peak_bytes"]) <= 12_000) == (str(COUNT), True)
    assert int(state["spooled_bytes"]) > (COUNT - 20) * PAYLOAD
    assert len({Reference.parse(found).name for found in await references(client, "billing")}) <= COUNT // 4
    assert await consume(client, "billing", COUNT) == [body(n) for n in range(COUNT)]
    await swept(tmp_path)


@pytest.mark.parametrize("place", [0, 1])
def test_a_link_spools_on_without_a_look_at_memory_in_between(place: int) -> None:
    """Mutant: what was stored by reference waits as what finds no room in memory does, a second each time."""
    worker = Forwarder(Forwarding("here", "there"))
    worker.stores.spools = True
    worker.hear(Open(), Opened("OK", 5, 0), 0)
    worker.hear(worker.calls(0)[0], Committed("OK", 0), 0)
    (fetch,) = worker.calls(0)
    worker.hear(fetch, Read("OK", 0, tuple(Entry(n, b"abc") for n in range(1, 4))), 0)
    (ask,) = (call for call in worker.calls(0) if isinstance(call, Commit))
    worker.hear(ask, Committed("OK", 0, place=1, again_ms=1000), 0)
    (first,) = (call for call in worker.calls(0) if isinstance(call, Commit))
    assert (first.spools, len(first.entries)) == (True, 3)
    worker.hear(first, Committed("OK", 1, place=place, again_ms=1000), 0)
    (follower,) = (call for call in worker.calls(0) if isinstance(call, Commit))
    assert (follower.spools, follower.need) == (bool(place), 0 if place else 3)
    assert worker.trouble == SPOOLS


class Lost:
    """Loses calls that commit references, or their answers: each third of the first thirty."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
        self.calls = self.lost = 0
        self._done, self._commit = done, LinkStore.commit
        monkeypatch.setattr(LinkStore, "commit", lambda *of, **how: self(*of, **how))  # noqa: PLW0108 -- a method again

    async def __call__(self, store: LinkStore, *of: Any, **how: Any) -> Committed:
        self.calls += how.get("segment", "-") != "-"
        if how.get("segment", "-") == "-" or self.calls % 3 or self.calls > 30:
            return await self._commit(store, *of, **how)
        self.lost += 1
        if self._done:
            await self._commit(store, *of, **how)
        raise CoordinatorUnavailable("lost")


@pytest.mark.parametrize("done", [False, True])
async def test_references_whose_call_was_lost_are_there_once_and_leave_no_segment(
    client: headgate.Client, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """Mutants: a segment is deleted before its messages are there; or is not where they got there in another one."""
    monkeypatch.setattr(forwarder, "LOOK_AGAIN", 0.05)
    lost = Lost(monkeypatch, done=done)
    await spooling(client, tmp_path, "billing", memory=5 * PAYLOAD)
    site = SiteOf("here", client, redis_url)
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    async with site.working():
        await fill(client, COUNT)
        await wait_until(lambda: is_empty(client, "orders"), timeout=80)
        assert lost.lost > 0
        assert await consume(client, "billing", COUNT) == [body(n) for n in range(COUNT)]
        await swept(tmp_path)


async def test_a_segment_that_was_not_committed_as_its_policy_changed_is_swept(
    client: headgate.Client, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when the link goes on under the same lease: whose segment it is would not be known until the node ends."""
    commit, cut = LinkStore.commit, asyncio.Event()

    async def cut_once(store: LinkStore, *of: Any, **how: Any) -> Committed:
        if how.get("segment", "-") != "-" and not cut.is_set():
            cut.set()
            await asyncio.Event().wait()
        return await commit(store, *of, **how)

    monkeypatch.setattr(LinkStore, "commit", cut_once)
    await spooling(client, tmp_path, "billing", memory=5 * PAYLOAD)
    site = SiteOf("here", client, redis_url)
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    async with site.working():
        sending = asyncio.create_task(fill(client, COUNT))
        async with asyncio.timeout(80):
            await cut.wait()
        await client.apply_policy(
            loads(bridges(("orders", "billing")).replace("[[bridge]]", "[[bridge]]\nmax_hops = 7"))
        )
        await sending
        assert await consume(client, "billing", COUNT) == [body(n) for n in range(COUNT)]

        async def nothing_left() -> bool:
            await SpoolSweep(client, "n", nothing).orphans()
            return not segments(tmp_path)

        await wait_until(nothing_left, timeout=80, description="the store is empty")


async def test_a_segment_of_a_node_that_is_killed_is_swept_and_all_messages_come_once(
    client: headgate.Client, redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    """Mutants: a link's segments are nobody's while its lease is in force, or never."""
    await spooling(client, tmp_path, "billing", memory=5 * PAYLOAD)
    with nodes(redis_url, cleanup_namespace, 2, "--ttl", 2) as pair:
        await client.apply_policy(loads(bridges(("orders", "billing"))))
        sending = asyncio.create_task(fill(client, 5 * COUNT))
        await wait_until(lambda: has_spooled(client, "billing"), timeout=80)
        name = await owner(client)
        next(node for node in pair if name.startswith(f"{node.name}~")).kill9()
        await sending
        assert await consume(client, "billing", 5 * COUNT) == [body(n) for n in range(5 * COUNT)]
        assert await owner(client) != name
    await SpoolSweep(client, "n", nothing).orphans()
    await swept(tmp_path)


async def nothing() -> list[str]:
    return []


async def has_spooled(client: headgate.Client, name: str) -> bool:
    return int((await fields(client, name)).get("spooled_bytes", 0)) > 20 * PAYLOAD


async def test_a_lost_segment_goes_to_the_links_dead_letters(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """Breaks when a payload that is not there any more stops the link, or goes to the target."""
    await spooling(client, tmp_path, memory=MEMORY)
    await fill(client, COUNT)
    lost = await first_segment(client, tmp_path)
    lost.unlink()
    policy = '[[bridge]]\nname = "b"\nfrom = "orders"\nto = "billing"\ndead_letters = "DLQ"\n'
    await client.apply_policy(loads("destination = []\n" + policy))
    await wait_until(lambda: is_empty(client, "orders"), timeout=80)
    got, dead = await stored(client, "billing"), [message async for message in client.browse("DLQ")]
    assert (len(got) + len(dead), got[-1], got == sorted(got, key=str)) == (COUNT, body(COUNT - 1), True)
    assert dead
    assert all(lost.name in message.headers["headgate-lost-segment"] for message in dead)
    await swept(tmp_path)


async def is_empty(client: headgate.Client, name: str) -> bool:
    return (await fields(client, name)).get("pending_messages") == "0"


@pytest.mark.whole
async def test_without_dead_letters_it_is_skipped(client: headgate.Client, node: NodeProcess, tmp_path: Path) -> None:
    """Breaks when it waits for dead letters that are not there: nobody can mend it."""
    await spooling(client, tmp_path, memory=MEMORY)
    await fill(client, COUNT)
    (await first_segment(client, tmp_path)).unlink()
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    await wait_until(lambda: is_empty(client, "orders"), timeout=80)
    got = await stored(client, "billing")
    assert len(got) < COUNT
    assert got[-1] == body(COUNT - 1)


def test_what_is_lost_is_a_dead_letter_unless_it_has_been_at_the_target() -> None:
    how = Forwarding("a", "b", judge=lambda _: Refusal("filter"))
    assert how.refusal(Entry(1, b"stub", lost="gone")) == Refusal("lost", dead_letter=True)
    assert how.refusal(Entry(1, b"stub", path=("b",), lost="gone")) == Refusal("loop")


async def test_a_store_that_does_not_answer_stalls_the_link_which_says_so(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """Breaks when a payload that cannot be read for now is taken for lost, or nothing is said."""
    await spooling(client, tmp_path, memory=MEMORY)
    await fill(client, COUNT)
    first = await first_segment(client, tmp_path)
    kept = first.read_bytes()
    first.unlink()
    first.mkdir()  # a file system that answers with an error
    await client.apply_policy(loads(bridges(("orders", "billing"))))

    async def said() -> bool:
        return any("cannot read" in one.trouble for one in await list_links(client))

    await wait_until(said, timeout=80)
    shutil.rmtree(first)
    first.write_bytes(kept)
    await there(client, "billing", [body(n) for n in range(COUNT)])


async def test_a_link_holds_no_more_payloads_than_its_window(client: headgate.Client, tmp_path: Path) -> None:
    """After a worker died, the source reads what it held by the bytes of references.

    Breaks when all of it is read back.
    """
    await spooling(client, tmp_path, memory=MEMORY)
    await fill(client, COUNT)
    source, link = Address.of(client.namespace, "orders"), link_id("x")
    links = LinkStore(client.store.server)
    born = (await links.open(source, link, fence=1, window="1000/1000000")).born
    how = {"fence": 1, "born": born, "mark": 0}
    await links.read(source, link, **how, after=0, messages=256, size=1 << 20)
    again = await links.read(source, link, **how, after=100, messages=256, size=10 * PAYLOAD)
    assert len(again.entries) > 50
    whole = await SpooledReads(client.parts.registry.spooling).whole(source, again.entries, 10 * PAYLOAD)
    assert [entry.seq for entry in whole] == list(range(101, 110))
    assert all(body(entry.seq - 1) in entry.body for entry in whole)
    assert len(await SpooledReads(client.parts.registry.spooling).whole(source, again.entries, 1)) == 1


@pytest.mark.longest
async def test_a_channel_sends_payloads_and_readers_miss_what_is_lost(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """A topic of a channel has no limit, unless it is set by hand.

    Breaks when the feeder sends what it read as it is; and when it says nothing of what it leaves out.
    """
    group = Group()
    # So slow that most is still there when all is sent, however busy the machine is.
    await client.apply_policy(loads('flow_control = "off"\n' + group.channel("prices", maxrate=10_000)))
    await opened(client)
    await spooling(client, tmp_path, "prices", kind="topic", enforce="always")
    async with collecting(group.reader()) as got:
        assert await fill(client, COUNT, "prices", kind="topic") > 0
        (await first_segment(client, tmp_path, "prices", at=-1)).unlink()
        await wait_until(lambda: is_empty(client, "prices"), timeout=120)
        await wait_until(lambda: len(got.messages) + got.reader.lost.total() == COUNT, timeout=80)
        assert got.reader.lost.total() > 0
        assert [message.body for message in got.messages] == [body(message.seq - 1) for message in got.messages]


async def test_a_message_that_neither_memory_nor_the_store_ever_has_room_for_is_a_dead_letter(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    """Breaks when it waits for ever, or when what the store has room for does not go there."""
    await spooling(client, tmp_path, "billing", memory=20_000, store_limit="60KB")
    policy = '[[bridge]]\nname = "b"\nfrom = "orders"\nto = "billing"\ndead_letters = "DLQ"\n'
    await client.apply_policy(loads("destination = []\n" + policy))
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for size in (14_000, 21_000, 61_000, 500):
            await producer.send(b"x" * size)
    await wait_until(lambda: is_empty(client, "orders"), timeout=80)
    assert [len(message) for message in await stored(client, "billing")] == [14_000, 21_000, 500]
    assert [len(message) for message in await stored(client, "DLQ")] == [61_000]


async def test_a_link_goes_on_once_a_slice_is_lent_messages(
    client: headgate.Client, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it hears of memory alone, and looks for room for references by itself, each second."""
    monkeypatch.setattr(forwarder, "LOOK_AGAIN", 0.05)
    rests, rest = 0.0, StoreTurn.rest

    def noted(turn: StoreTurn, until: float) -> None:
        nonlocal rests
        rests = until
        rest(turn, until)

    monkeypatch.setattr(StoreTurn, "rest", noted)
    await spooling(client, tmp_path, "billing", memory=2 * PAYLOAD, slices=3, limit_messages=10)
    site = SiteOf("here", client, redis_url)
    await client.apply_policy(loads(bridges(("orders", "billing"))))

    async def there(count: int) -> bool:
        return len([message async for message in client.browse("billing")]) >= count

    async with site.working():
        await fill(client, 60)
        await wait_until(lambda: there(10), timeout=80)
        monkeypatch.setattr(forwarder, "LOOK_AGAIN", 1000)
        loop = asyncio.get_running_loop()
        await wait_until(lambda: rests > loop.time() + 500, timeout=80, description="it looks by itself no more")
        await client.apply("billing", limit_messages=40)
        await wait_until(lambda: there(11), timeout=80)
    await client.purge("billing")
    await client.purge("orders")
    await swept(tmp_path)


async def test_a_target_without_room_for_references_costs_its_store_nothing(
    client: headgate.Client, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when each try leaves a segment at the store: a queue that nobody reads would fill it."""
    monkeypatch.setattr(forwarder, "LOOK_AGAIN", 0.05)
    tries, write = 0, SpooledWrites.write

    async def counted(writes: SpooledWrites, entries: Any) -> Any:
        nonlocal tries
        tries += 1
        return await write(writes, entries)

    monkeypatch.setattr(SpooledWrites, "write", counted)
    await spooling(client, tmp_path, "billing", memory=5 * PAYLOAD, limit_references=2000)
    site = SiteOf("here", client, redis_url)
    await client.apply_policy(loads(bridges(("orders", "billing"))))
    async with site.working() as (supervisor,):
        await fill(client, 60)

        def crowded() -> bool:
            return any("references" in fact.trouble.text for fact in supervisor.facts() if fact.trouble)

        await wait_until(crowded, timeout=80, description="the link says what there is no room for")
        before = tries
        await wait_until(lambda: tries > before + 20, timeout=80, description="it tries again and again")
        used = {Reference.parse(found).name for found in await references(client, "billing")}
        assert used

        def no_other() -> bool:
            return {path.name for path in segments(tmp_path)} == used

        await wait_until(no_other, timeout=80, description="the store has what is referred to, and nothing else")
        assert await consume(client, "billing", 60) == [body(n) for n in range(60)]
        await swept(tmp_path)


async def test_a_link_writes_to_no_files_of_another_site(
    client: headgate.Client, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here they may be another disk, which the consumers there never read; though its node may touch that path."""
    monkeypatch.setenv("HEADGATE_SITE_BERLIN", redis_url)
    policy = (
        "site_name = 'paris'\n[[site]]\nname = 'berlin'\nurl = 'env:HEADGATE_SITE_BERLIN'\n"
        f"namespace = '{client.namespace}-b'\n[[route]]\nname = 'r'\nto = 'berlin'\nqueues = 'orders'\n"
    )
    async with headgate.connect(redis_url, namespace=f"{client.namespace}-b") as there:
        try:
            await spooling(there, tmp_path, memory=5 * PAYLOAD)
            await client.apply_policy(loads(policy))
            reach = PolicyReach(stores=(f"file://{tmp_path}",))
            async with SiteOf("paris", client, redis_url, reach=reach).working() as (supervisor,):
                await fill(client, COUNT)

                def says_why() -> bool:
                    return any("files of that site" in fact.trouble.text for fact in supervisor.facts() if fact.trouble)

                await wait_until(says_why, timeout=80, description="the link says why it waits for memory")
                assert await consume(there, "orders", COUNT) == [body(n) for n in range(COUNT)]
                assert segments(tmp_path) == []
        finally:
            delete_namespace(redis_url, there.namespace)
