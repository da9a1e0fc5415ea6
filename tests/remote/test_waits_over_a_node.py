"""Sessions that reach Redis through a node: what they tell of their waits, and what users may tell and see."""

import asyncio

import pytest

from headgate import AccessDenied, DeadlockDetected, InvalidValue
from headgate.redis.keys import notes_key
from headgate.redis.scripts import script
from headgate.redis.stores.notes import KEEP_MS, AnnouncedTies, NoteStore, Tie
from headgate_coordinator.deadlock.detector import Detector
from headgate_coordinator.node.node import Node
from tests.remote.test_gateway_rights import as_user, node
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
__all__ = ["node"]


async def test_a_deadlock_of_sdks_over_a_node_is_found_and_ended(node: Node) -> None:
    async with as_user(node, "boss") as one, as_user(node, "boss") as two:
        for name in ("x", "y"):
            await one.apply(name, limit=100, deadlock="fail")
            async with one.session("before") as session:
                await (await session.producer(name)).send(b"x" * 90)
        async with one.session("a") as a, two.session("b") as b:
            sends = []
            for session, reads, writes in ((a, "x", "y"), (b, "y", "x")):

                async def pass_on(session: object = session, reads: str = reads, writes: str = writes) -> None:
                    consumer, producer = await session.consumer(reads), await session.producer(writes)  # type: ignore[attr-defined]
                    message = await consumer.receive(timeout=GUARD)
                    await producer.send(message.body, timeout=600)

                sends.append(asyncio.create_task(pass_on()))
            detector = Detector(node.client, "n1", ttl=5.0)

            async def failed() -> set[asyncio.Task[None]]:
                await detector.round()
                return {send for send in sends if send.done()}

            (ended,) = await wait_until(failed, timeout=GUARD)
            with pytest.raises(DeadlockDetected, match=f"session {a.id} waits for room in queue y"):
                await ended
            (found,) = await one.deadlocks()
            assert found.done
            for send in sends:
                send.cancel()


async def test_who_does_not_manage_tells_only_of_its_own_and_sees_none(node: Node) -> None:
    waits, key = script("note"), notes_key(node.client.namespace, "waits")
    async with as_user(node, "seller") as seller, as_user(node, "buyer") as buyer, as_user(node, "boss") as boss:
        theirs = NoteStore(seller.store.server, seller.namespace)
        with pytest.raises(AccessDenied, match="is not yours"):
            await AnnouncedTies(theirs).tell([Tie("orders", "buyer~c~00000000.1", "orders", "1.0")], 0.0)
        with pytest.raises(AccessDenied, match="consume at 'orders'"):
            await AnnouncedTies(theirs).tell([Tie("orders", "seller~c~00000000.1", "orders", "1.0")], 0.0)
        mine = NoteStore(buyer.store.server, buyer.namespace)
        tie = Tie("orders", "buyer~c~00000000.1", "news.uk", "1.0")
        with pytest.raises(AccessDenied, match=r"produce at 'news\.uk'"):
            await mine.write("waits", {tie.name: tie.text})
        await mine.write("waits", {tie.name: ""})
        more = f"{tie.text} more=1"
        for name, text in (("orders", "x"), (tie.name, "at=orders"), (tie.name, more), ("a b c", "")):
            with pytest.raises(InvalidValue, match="not a note about a wait"):
                await mine.write("waits", {name: text})
        with pytest.raises(InvalidValue, match="for the waits"):
            await buyer.store.server.call(waits, (key,), [KEEP_MS["waits"] * 1000, tie.name, ""])
        with pytest.raises(InvalidValue, match="for the waits"):
            await boss.store.server.call(
                waits, (notes_key(boss.namespace, "deadlocks"),), [KEEP_MS["waits"], "a b", ""]
            )
        with pytest.raises(AccessDenied, match="looking for deadlocks"):
            await buyer.deadlocks()
        assert await boss.deadlocks() == []
        await boss.apply("orders", limit=100)
        assert (await buyer.explain("orders")).deadlock is None
