"""Dead letters, and what is moved by hand, go to the slice of their value, where a queue keeps the order of these."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

import headgate
from headgate import DestinationFull
from headgate.redis.keys import Address
from headgate.redis.scripts import Script
from headgate.redis.stores.spreads import SpreadStore
from headgate_coordinator.operate.audit import audit
from tests.sdk.namespace.test_moves import Killed, die_at
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
VALUES = 8
MOVES = 1
"""A value that has another slice of seven than of four, and the first of neither."""
BY_VALUE: dict[str, Any] = {"kind": "queue", "limit": 40_000, "slices": 4, "order_by": "header:customer"}


def slice_of(id_: str) -> str:
    return id_.rpartition(":")[0] or "0"


async def where(client: headgate.Client, name: str) -> dict[int, dict[str, list[str]]]:
    """Return for each value the bodies at each slice."""
    found: dict[int, dict[str, list[str]]] = {}
    async for one in client.browse(name):
        found.setdefault(int(one.headers["customer"]), {}).setdefault(slice_of(one.id), []).append(str(one.body))
    return found


async def in_force(client: headgate.Client, name: str) -> tuple[int, str]:
    now, to = await SpreadStore(client.store.server).in_force(Address.of(client.namespace, name))
    return now.slices if now else 0, to


async def send(session: headgate.Session, name: str, text: str) -> dict[int, str]:
    """Send a message of each value; return their slices."""
    producer = await session.producer(name)
    receipts = [await producer.send(text, headers={"customer": value}, timeout=GUARD) for value in range(VALUES)]
    return {value: str(receipt.slice) for value, receipt in enumerate(receipts)}


async def reject_all(consumer: headgate.Consumer, count: int) -> None:
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await asyncio.wait_for(message.reject("bad", confirm=True), GUARD)


async def empty(client: headgate.Client, name: str, count: int) -> None:
    """Settle so many messages of a queue."""
    async with client.session() as session:
        consumer = await session.consumer(name)
        for _ in range(count):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)


@pytest.mark.parametrize("place", ["alone", "cluster"])
async def test_dead_letters_go_where_others_send_their_value(
    request: pytest.FixtureRequest, cleanup_namespace: str, place: str
) -> None:
    """Mutants: they all go to the first slice; nobody fetches what that slice may use of the limit."""
    url = request.getfixturevalue("cluster_url" if place == "cluster" else "redis_url")
    async with headgate.connect(url, namespace=cleanup_namespace) as client, client.session("a") as session:
        await client.apply("dead", **BY_VALUE)
        await client.apply("orders", kind="queue", dead_letter="dead")
        await send(session, "orders", "dead")
        await reject_all(await session.consumer("orders"), VALUES)
        letters = await where(client, "dead")
        slices = await send(session, "dead", "sent")
        assert len(set(slices.values())) > 1
        both = await where(client, "dead")
        assert {value: list(at) for value, at in letters.items()} == {value: [at] for value, at in slices.items()}
        assert both == {value: {at: ["dead", "sent"]} for value, at in slices.items()}
        assert all(one.sound for one in await audit(client, repair=False))


async def test_dead_letters_without_a_value_go_together(client: headgate.Client) -> None:
    await client.apply("dead", **BY_VALUE)
    await client.apply("orders", kind="queue", dead_letter="dead", slices=3)
    async with client.session("a") as a, client.session("b") as b:
        for session in (a, b):
            producer = await session.producer("orders")
            for number in range(4):
                await producer.send(f"{number}")
        await reject_all(await a.consumer("orders"), 8)
    assert len({slice_of(one.id) async for one in client.browse("dead")}) == 1


async def test_dead_letters_wait_while_slices_change_and_take_the_steps(client: headgate.Client) -> None:
    """Nobody else sends there. Mutants: a letter takes no steps; it goes by how the queue was spread before."""
    await client.apply("dead", **BY_VALUE)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("a") as session:
        await send(session, "dead", "before")
        await send(session, "orders", "dead")
        await client.apply("dead", slices=7)
        consumer = await session.consumer("orders", window=20)
        rejecting = asyncio.ensure_future(reject_all(consumer, VALUES))
        store = SpreadStore(client.store.server)

        async def is_held() -> bool:
            return await store.held(Address.of(client.namespace, "dead#1")) != ""

        await wait_until(is_held, timeout=GUARD)
        await empty(client, "dead", VALUES)
        await rejecting
        assert await in_force(client, "dead") == (7, "")
        letters = await where(client, "dead")
        slices = await send(session, "dead", "after")
        assert {value: list(at) for value, at in letters.items()} == {value: [at] for value, at in slices.items()}


async def test_a_slice_that_stayed_held_is_let_go_for_a_dead_letter(client: headgate.Client) -> None:
    """Whoever put a change in force died before the slices were let go. Mutant: a letter waits there for ever."""
    await client.apply("dead", **BY_VALUE)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("a") as session:
        await send(session, "dead", "before")
        await empty(client, "dead", VALUES)
        store = SpreadStore(client.store.server)
        now, _ = await store.in_force(Address.of(client.namespace, "dead"))
        assert now is not None
        for number in (1, 2, 3):
            part = Address.of(client.namespace, f"dead#{number}")
            assert (await store.step(part, f"{now.number} ", "hold"))[0] == "OK"
        await send(session, "orders", "dead")
        await reject_all(await session.consumer("orders"), VALUES)
        assert len(await where(client, "dead")) == VALUES


@contextlib.asynccontextmanager
async def still_at(client: headgate.Client, number: int, *, done: bool) -> AsyncIterator[asyncio.Event]:
    """Have a client stand still at its call of that number that stores or settles, before or after it is made."""
    server: Any = client.store.server
    call, made, still = server.call, itertools.count(1), asyncio.Event()

    async def until_then(script: Script, keys: Sequence[bytes], argv: Sequence[Any], *rest: Any) -> Any:
        is_last = script.name in ("publish", "settle") and next(made) == number
        answer = await call(script, keys, argv, *rest) if not still.is_set() and (done or not is_last) else None
        if is_last or still.is_set():
            still.set()
            await asyncio.Event().wait()
        return answer

    server.call = until_then
    try:
        yield still
    finally:
        server.call = call


@pytest.mark.parametrize(("number", "done"), [(3, True), (4, False), (4, True), (5, False)])
async def test_whatever_call_is_the_last_a_dead_letter_is_stored_once(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, number: int, done: bool
) -> None:
    """It is consumed, and slices change, before it is dead again. Mutant: no other slices are asked for it."""
    await client.apply("dead", **BY_VALUE | {"slices": 3})
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("a") as session:
        await send(session, "dead", "before")
        await empty(client, "dead", VALUES)
        await (await session.producer("orders")).send("bad", headers={"customer": 1})
    stopping = headgate.connect(redis_url, namespace=cleanup_namespace)
    async with stopping, stopping.session("stopping", ttl=5) as session:
        message = await (await session.consumer("orders")).receive(timeout=GUARD)
        assert message is not None
        async with still_at(stopping, number, done=done) as still:
            rejecting = asyncio.ensure_future(message.reject("bad", confirm=True))
            await asyncio.wait_for(still.wait(), GUARD)
            rejecting.cancel()
    stored = len([one async for one in client.browse("dead")])
    await empty(client, "dead", stored)
    await client.apply("dead", slices=7)
    async with client.session("b") as session:
        await reject_all(await session.consumer("orders"), 1)
    assert stored + len([one async for one in client.browse("dead")]) == 1
    assert (await client.explain("orders")).limits[1].pending == 0


async def moved_by_value(client: headgate.Client) -> list[str]:
    """Have messages of all values at a queue from which they are to be moved; return their ids, the oldest first."""
    await client.apply("back", **BY_VALUE)
    await client.apply("lost", kind="queue")
    async with client.session("a") as session:
        await send(session, "lost", "moved")
    return [one.id async for one in client.browse("lost")]


@pytest.mark.parametrize("place", ["alone", "cluster"])
async def test_what_is_moved_goes_where_others_send_its_value(
    request: pytest.FixtureRequest, cleanup_namespace: str, place: str
) -> None:
    """Mutants: all goes to the first slice; nobody fetches what that slice may use of the limit."""
    url = request.getfixturevalue("cluster_url" if place == "cluster" else "redis_url")
    async with headgate.connect(url, namespace=cleanup_namespace) as client, client.session("a") as session:
        for id_ in await moved_by_value(client):
            await client.move_message("lost", id_, "back")
        slices = await send(session, "back", "sent")
        assert await where(client, "back") == {value: {at: ["moved", "sent"]} for value, at in slices.items()}
        back = [one.id async for one in client.browse("back")]
        await client.move_message("back", back[-1], "lost")
        assert len([one async for one in client.browse("lost")]) == 1
        assert all(one.sound for one in await audit(client, repair=False))


async def test_a_move_is_refused_while_slices_change_and_takes_the_steps(client: headgate.Client) -> None:
    """Mutants: it goes by how the queue was spread before; it takes no steps."""
    ids = await moved_by_value(client)
    async with client.session("a") as session:
        await send(session, "back", "before")
    await client.apply("back", slices=7)
    for _ in range(2):
        with pytest.raises(
            DestinationFull, match="about to go to other slices, as soon as all that is there is settled"
        ):
            await client.move_message("lost", ids[0], "back")
    assert [one.id async for one in client.browse("lost")] == ids
    await empty(client, "back", VALUES)
    for id_ in ids:
        await client.move_message("lost", id_, "back")
    assert await in_force(client, "back") == (7, "")
    moved = await where(client, "back")
    async with client.session("b") as session:
        slices = await send(session, "back", "after")
    assert {value: list(at) for value, at in moved.items()} == {value: [at] for value, at in slices.items()}


async def test_a_queue_that_was_stopped_by_hand_says_so_to_moves(client: headgate.Client) -> None:
    ids = await moved_by_value(client)
    await client.block("back", "maintenance")
    with pytest.raises(DestinationFull, match="it was stopped by hand"):
        await client.move_message("lost", ids[0], "back")
    await client.unblock("back")
    await client.move_message("lost", ids[0], "back")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("number", [3, 4, 5, 6])
async def test_whatever_call_is_the_last_of_a_move_the_message_is_in_one_place(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, number: int, done: bool
) -> None:
    """Slices change before it is ended. Mutant: it is ended at another slice than it was taken for."""
    ids = await moved_by_value(client)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as mover:
        die_at(mover, number, done=done)
        with pytest.raises(Killed):
            await mover.move_message("lost", ids[2], "back")
    stored = len([one async for one in client.browse("back")])
    await empty(client, "back", stored)
    await client.apply("back", slices=6)
    await client.end_moves("lost", older_than_ms=0)
    left = [one.id async for one in client.browse("lost")]
    assert len(left) == VALUES - stored
    for id_ in left:
        await client.move_message("lost", id_, "back")
    found = await where(client, "back")
    assert sum(len(bodies) for at in found.values() for bodies in at.values()) == VALUES - stored
    assert all(one.sound for one in await audit(client, repair=False))


def before_first(client: headgate.Client, name: str, prepare: Callable[[], Awaitable[None]]) -> None:
    """Have something happen before a client's first call of a script, at queues of which messages are brought."""
    server: Any = client.store.server
    call, prepared = server.call, False

    async def prepare_first(script: Script, keys: Sequence[bytes], argv: Sequence[Any], *rest: Any) -> Any:
        nonlocal prepared
        if script.name == name and b"/back" in keys[0] and not prepared:
            prepared = True
            await prepare()
        return await call(script, keys, argv, *rest)

    server.call = prepare_first


@pytest.mark.parametrize("stays_held", [False, True])
async def test_room_that_comes_after_a_change_is_of_no_use_to_a_move_from_before(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, stays_held: bool
) -> None:
    """A mover stood still through the change, or it begins then. Mutant: it does not look once it has room."""
    ids = await moved_by_value(client)
    async with client.session("a") as session:
        await send(session, "back", "before")
    await empty(client, "back", VALUES)

    async def change() -> None:
        await client.apply("back", slices=7)
        if not stays_held:
            await client.move_message("lost", ids[7], "back")  # it takes the steps
        else:
            store = SpreadStore(client.store.server)
            for number in range(1, 4):
                await store.step(Address.of(client.namespace, f"back#{number}"), "2 7 header:customer", "hold")

    async with headgate.connect(redis_url, namespace=cleanup_namespace) as mover:
        before_first(mover, "link_commit", change)
        for id_ in ids[MOVES : 7 + stays_held] + ids[:MOVES]:
            await mover.move_message("lost", id_, "back")
    async with client.session("b") as session:
        slices = await send(session, "back", "after")
    assert await where(client, "back") == {value: {at: ["moved", "after"]} for value, at in slices.items()}


async def test_room_that_comes_after_a_change_is_of_no_use_to_a_dead_letter_from_before(
    redis_url: str, cleanup_namespace: str, client: headgate.Client
) -> None:
    """The same of a letter. Mutant: it does not look once it has room."""
    await moved_by_value(client)
    await client.apply("lost", dead_letter="back")

    async def change() -> None:
        await client.apply("back", slices=7)
        async with client.session("c") as session:
            await (await session.producer("back")).send("other", headers={"customer": 100})

    async with headgate.connect(redis_url, namespace=cleanup_namespace) as dying, dying.session("d") as session:
        consumer = await session.consumer("lost", window=VALUES)
        messages = [message for _ in range(VALUES) if (message := await consumer.receive(timeout=GUARD))]
        before_first(dying, "acquire", change)
        for message in messages[MOVES:] + messages[:MOVES]:
            await asyncio.wait_for(message.reject("bad", confirm=True), GUARD)
    letters = {value: list(at) for value, at in (await where(client, "back")).items() if value < VALUES}
    async with client.session("b") as session:
        slices = await send(session, "back", "after")
    assert letters == {value: [at] for value, at in slices.items()}
