"""A message that is moved by hand is in one place, whichever call is the last of its mover."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import headgate
from headgate.redis.scripts import Script
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.operate.audit import audit
from headgate_coordinator.service import sweep as sweeps
from headgate_coordinator.service.sweep import Sweep
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
CALLS = 7
"""Calls of scripts that a move makes, looks included."""


class Killed(BaseException):
    """The process is gone."""


def die_at(client: headgate.Client, number: int, *, done: bool) -> list[str]:
    """Have the client's process end at its call of that number: before it is sent, or before its answer comes."""
    server: Any = client.store.server
    call, made = server.call, list[str]()

    async def until_then(script: Script, keys: Sequence[bytes], argv: Sequence[Any], *rest: Any) -> Any:
        made.append(script.name)
        if len(made) > number or (len(made) == number and not done):
            raise Killed
        answer = await call(script, keys, argv, *rest)
        if len(made) == number:
            raise Killed
        return answer

    server.call = until_then
    return made


async def filled(client: headgate.Client) -> list[str]:
    await client.apply("dead", limit=1000)
    await client.apply("orders", limit=1000)
    async with client.session() as session:
        producer = await session.producer("dead")
        for number in range(3):
            await producer.send(b"%d" % number, headers={"n": number})
    return [one.id async for one in client.browse("dead")]


async def bodies(client: headgate.Client, name: str) -> list[Any]:
    return [one.body async for one in client.browse(name)]


async def check(client: headgate.Client) -> tuple[list[Any], list[Any]]:
    """Expect each message to be in one place, and all counters to be right; return which are where."""
    here, there = await bodies(client, "dead"), await bodies(client, "orders")
    assert sorted(here + there) == [b"0", b"1", b"2"]
    found = await audit(client, repair=False)
    assert all(one.sound for one in found), found
    for name, count in (("dead", len(here)), ("orders", len(there))):
        assert (await client.explain(name)).limits[1].pending == count
    return here, there


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
@pytest.mark.parametrize("place", [pytest.param("alone", marks=pytest.mark.whole), "cluster"])
async def test_whatever_call_is_the_last_the_message_is_in_one_place(
    request: pytest.FixtureRequest, cleanup_namespace: str, number: int, done: bool, place: str
) -> None:
    """Two slots, and in the cluster two masters. Mutants: the source lets go first; nobody ends what was begun."""
    url = request.getfixturevalue("cluster_url" if place == "cluster" else "redis_url")
    async with headgate.connect(url, namespace=cleanup_namespace) as client:
        ids = await filled(client)
        async with headgate.connect(url, namespace=cleanup_namespace) as mover:
            made = die_at(mover, number, done=done)
            try:
                await mover.move_message("dead", ids[1], "orders")
            except Killed:
                assert len(made) >= number
            else:
                assert made == ["move", "snapshot", "link_commit", "move", "link_commit", "move", "acquire"]
        taken = b"1" not in await bodies(client, "dead")
        await client.end_moves("dead", older_than_ms=0)
        here, _ = await check(client)
        if not taken:
            assert here == [b"0", b"1", b"2"]
        found = [one.id async for one in client.browse("dead")]
        await client.move_message("dead", found[0], "orders")
        assert (await check(client))[1][-1] == b"0", "and all goes on"


async def test_the_next_move_ends_what_an_earlier_one_left(redis_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        ids = await filled(client)
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as mover:
            die_at(mover, 4, done=True)
            with pytest.raises(Killed):
                await mover.move_message("dead", ids[0], "orders")
        assert await bodies(client, "dead") == [b"1", b"2"]
        await client.move_message("dead", ids[1], "orders")
        assert await check(client) == ([b"2", b"0"], [b"1"])


async def test_a_node_ends_what_nobody_does(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a round does not look; it does not leave a mover that is at work alone."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        ids = await filled(client)
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as mover:
            die_at(mover, 5, done=True)
            with pytest.raises(Killed):
                await mover.move_message("dead", ids[0], "orders")
        sweep = Sweep(client, NodeRegistry(client), "this", set)
        await sweep.round()
        assert (await client.explain("dead")).limits[1].pending == 3, "it may be at work still"
        monkeypatch.setattr(sweeps, "BROKE_OFF_MS", 0)

        async def is_over() -> bool:
            await sweep.round()
            return (await client.explain("dead")).limits[1].pending == 2

        await wait_until(is_over)
        assert await check(client) == ([b"1", b"2"], [b"0"])


async def test_many_move_the_same_and_others_and_each_arrives_once(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a move that was fenced off is not tried again."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        ids = await filled(client)
        answers = await asyncio.gather(
            *(client.move_message("dead", id_, "orders") for id_ in (*ids, ids[0])), return_exceptions=True
        )
        assert all(one is None or isinstance(one, headgate.MessageUnavailable) for one in answers), answers
        await check(client)


async def test_a_target_that_does_not_take_it_leaves_it_where_it_is(redis_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        ids = await filled(client)
        await client.apply("calls", kind="gate", limit=8)
        await client.apply("news", kind="topic")
        await client.apply("small", limit=2)
        for target, error, words in (
            ("nowhere", headgate.UnknownDestination, "nowhere"),
            ("calls", headgate.PolicyError, "stores no messages"),
            ("news", headgate.PolicyError, "nobody has subscribed"),
            ("small", headgate.MessageTooLarge, "small"),
            ("dead", headgate.InvalidValue, "is there already"),
        ):
            with pytest.raises(error, match=words):
                await client.move_message("dead", ids[0], target)
        await client.block("orders", "maintenance")
        with pytest.raises(headgate.DestinationFull, match="stopped"):
            await client.move_message("dead", ids[0], "orders")
        await client.unblock("orders")
        session = client.session()
        producer = await session.producer("orders", window=1000)
        await producer.send(b"x" * 985)
        with pytest.raises(headgate.DestinationFull, match="no room"):
            await client.move_message("dead", ids[0], "orders")
        assert [one.id async for one in client.browse("dead")] == ids
        assert (await client.explain("orders")).blocked == 0, "it does not stay in line"
        for wrong in ("", "1", "1-1x", "x-1", "1-1-1", "1" * 17 + "-1"):
            with pytest.raises(headgate.InvalidValue, match="id of a message"):
                await client.delete_message("dead", wrong)
        with pytest.raises(headgate.MessageUnavailable) as gone:
            await client.delete_message("dead", "99-1")
        assert (gone.value.why, gone.value.id) == ("gone", "99-1")
        await session.close()


async def test_a_dead_letter_goes_back_and_a_pool_lends_room_for_it(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: the target's pools are not asked."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.set_pool("memory", limit="64KiB")
        await client.apply("orders", limit="32KiB", max_attempts=1, dead_letter="orders.dead", pools="memory")
        await client.apply("orders.dead", limit="32KiB")
        async with client.session() as session:
            await (await session.producer("orders")).send(b"again")
            consumer = await session.consumer("orders")
            message = await consumer.receive(timeout=20)
            assert message is not None
            await message.reject("no", confirm=True)

            async def is_dead() -> bool:
                return len(await bodies(client, "orders.dead")) == 1

            await wait_until(is_dead)
            (dead,) = [one.id async for one in client.browse("orders.dead")]
            await client.move_message("orders.dead", dead, "orders")
            message = await consumer.receive(timeout=20)
            assert message is not None
            assert (message.body, message.headers["headgate-dead-from"]) == (b"again", "orders")
            await message.accept(confirm=True)
        assert await bodies(client, "orders.dead") == []
        assert all(one.sound for one in await audit(client, repair=False))


async def test_what_a_spool_store_has_is_deleted_and_not_moved(redis_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.set_store("disk", "memory://moves", limit="64KiB", segment="4KiB")
        await client.apply("orders", limit=1000, when_full="spool", store="disk")
        await client.apply("other", limit="64KiB")
        async with client.session() as session:
            producer = await session.producer("orders")
            for _ in range(4):
                await producer.send(b"x" * 600)
        spooled = [one.id async for one in client.browse("orders") if one.id.endswith("-0")]
        assert spooled
        with pytest.raises(headgate.MessageUnavailable) as refused:
            await client.move_message("orders", spooled[0], "other")
        assert refused.value.why == "spooled"
        await client.delete_message("orders", spooled[0])
        assert spooled[0] not in [one.id async for one in client.browse("orders")]
        assert all(one.sound for one in await audit(client, repair=False))


async def test_messages_are_moved_out_of_slices_and_into_them_and_deleted(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: ids that say a slice are taken for those of the first; the slices' pool lends nothing for a move."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        for name in ("dead", "orders"):
            await client.apply(name, limit=1000, slices=3)
        async with client.session() as a, client.session() as b, client.session() as c:
            for number, session in enumerate((a, b, c)):
                await (await session.producer("dead")).send(b"%d" % number)
        ids = {one.body: one.id async for one in client.browse("dead")}
        assert sorted(id_.rpartition(":")[0] for id_ in ids.values()) == ["", "1", "2"]
        for body, id_ in ids.items():
            await client.move_message("dead", id_, "orders")
            assert body in (await check(client))[1]
            with pytest.raises(headgate.MessageUnavailable) as gone:
                await client.move_message("dead", id_, "orders")
            assert (gone.value.destination, gone.value.id, gone.value.why) == ("dead", id_, "gone")
        back = [one.id async for one in client.browse("orders")]
        await client.move_message("orders", back[0], "dead")
        await check(client)
        await client.delete_message("orders", back[1])
        (left,) = await bodies(client, "dead")
        assert len(await bodies(client, "orders")) == 1
        with pytest.raises(headgate.MessageUnavailable):
            await client.delete_message("orders", "47:1-1")
        for wrong in ("48:1-1", "0:1-1", "01:1-1", ":1-1"):
            with pytest.raises(headgate.InvalidValue):
                await client.delete_message("orders", wrong)
        for source, target in (("dead#1", "orders"), ("dead", "orders#1")):
            with pytest.raises(headgate.InvalidName, match="slice"):
                await client.move_message(source, "1-1", target)
        assert await bodies(client, "dead") == [left]
        assert all(one.sound for one in await audit(client, repair=False))


async def test_what_a_dead_process_took_of_a_slice_is_put_in_its_place(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it is looked for at the first slice alone."""
    monkeypatch.setattr(sweeps, "BROKE_OFF_MS", 0)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("dead", limit=1000, slices=3)
        await client.apply("orders", limit=1000)
        async with client.session() as a, client.session() as b, client.session() as c:
            for session in (a, b, c):
                await (await session.producer("dead")).send(b"one")
        ids = [one.id async for one in client.browse("dead")]

        async def begin(id_: str) -> None:
            async with headgate.connect(redis_url, namespace=cleanup_namespace) as mover:
                die_at(mover, 5, done=True)
                with pytest.raises(Killed):
                    await mover.move_message("dead", id_, "orders")

        await begin(ids[2])
        assert (await client.explain("dead")).limits[1].pending == 3
        assert await client.end_moves("dead", older_than_ms=0) == 1
        assert (await client.explain("dead")).limits[1].pending == 2
        await begin(ids[1])
        await Sweep(client, NodeRegistry(client), "this", set).round()
        assert (await client.explain("dead")).limits[1].pending == 1
        assert len(await bodies(client, "orders")) == 2
        assert all(one.sound for one in await audit(client, repair=False))
