"""A failover that was asked for, and a slot that moves, lose nothing: all goes on as if nothing had happened."""

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial

import pytest
from redis.crc import key_slot

import headgate
from headgate.redis.connection import SURE_FOR
from headgate.redis.keys import Address
from tests.faults.deployments import Replicated, ask, at, hand_over, is_linked, is_master, move_slot
from tests.faults.failovers import put_in_front
from tests.faults.traffic import GUARD, Holder, Inside, Receiver, Sender
from tests.links.forwarding.test_failovers import Pair
from tests.support.waiting import wait_for, wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.docker]


def slot_of(client: headgate.Client, name: str) -> int:
    slot: int = key_slot(Address.of(client.namespace, name).key.encode())
    return slot


@pytest.mark.usefixtures("sure_of_the_former")
async def test_a_cluster_that_hands_over_and_back_and_moves_a_slot_begins_no_epoch(cluster: Replicated) -> None:
    """Mutant: `Handovers` believes nobody; then nothing new is granted for a whole lease, four times."""
    told: list[headgate.StateLoss] = []
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        clients = [await enter(headgate.connect(cluster.url)) for _ in range(2)]
        for client in clients:
            client.on_state_loss(told.append)
        await clients[0].apply("orders", kind="queue", limit="1 MiB")
        slot = slot_of(clients[0], "orders")
        sessions = [await enter(client.session(f"s{number}", ttl=5.0)) for number, client in enumerate(clients)]
        receiver = await enter(Receiver(await sessions[1].consumer("orders")))
        sender = await enter(Sender(await sessions[0].producer("orders")))
        await sender.goes_on()
        master, replica = cluster.pair_of(slot)
        targets = [node for node in cluster.masters if node is not master]
        await hand_over(master, replica)
        await sender.goes_on()
        await hand_over(replica, master)
        await sender.goes_on()
        move_slot(slot, master, targets[0], targets[1])
        await sender.goes_on()
        move_slot(slot, targets[0], targets[1], master)
        await sender.goes_on()
        await receiver.has(sender.sent)
        in_order = list(dict.fromkeys(receiver.got))
        assert in_order == sorted(in_order)
        assert len(receiver.got) == len(in_order), "nothing came twice"
    assert not told


@pytest.mark.usefixtures("sure_of_the_former")
async def test_a_gate_of_a_cluster_that_hands_over_admits_no_more_than_it_may(cluster: Replicated) -> None:
    told: list[headgate.StateLoss] = []
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        clients = [await enter(headgate.connect(cluster.url)) for _ in range(2)]
        await clients[0].apply("door", kind="gate", limit=8)
        master, replica = cluster.pair_of(slot_of(clients[0], "door"))
        holders = []
        inside = Inside()
        for number, client in enumerate(clients):
            client.on_state_loss(told.append)
            gate = await (await enter(client.session(f"g{number}", ttl=5.0))).gate("door")
            holders += [await enter(Holder(gate, inside)) for _ in range(8)]
        await asyncio.gather(*(holder.goes_on() for holder in holders))
        for before, after in ((master, replica), (replica, master)):
            await hand_over(before, after)
            await clients[0].apply("door", limit=8)  # holders may go on without a call, and who calls none is not seen
            await asyncio.gather(*(holder.goes_on() for holder in holders))
        assert inside.most <= 8
    assert not told


@pytest.mark.usefixtures("sure_of_the_former")
async def test_a_server_that_hands_over_to_its_replica_is_its_witness(pair: Pair, cleanup_namespace: str) -> None:
    """At one address, as behind a load balancer. Mutant: as above."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        async with client.session(ttl=5.0) as session, Sender(await session.producer("orders")) as sender:
            await sender.goes_on()
            ask(pair.primary, "FAILOVER", "TO", *at(pair.replica))
            wait_for(lambda: is_master(pair.replica), timeout=GUARD)
            put_in_front(pair, pair.replica)
            await sender.goes_on()
            ask(pair.replica, "FAILOVER", "TO", *at(pair.primary))
            wait_for(lambda: is_master(pair.primary), timeout=GUARD)
            put_in_front(pair, pair.primary)
            await sender.goes_on()
            assert not told
            await client.remove("orders")


@pytest.mark.usefixtures("sure_of_the_former")
async def test_a_destination_that_nobody_called_between_two_handovers_begins_no_epoch(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: only the run before the last promotion may be the one that a destination was served by."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        async with client.session("quiet", ttl=60.0) as quiet, client.session("busy", ttl=5.0) as busy:
            seldom = await quiet.producer("seldom")
            await seldom.send("before")
            async with Sender(await busy.producer("orders")) as sender:
                for before, after in ((pair.primary, pair.replica), (pair.replica, pair.primary)):
                    await sender.goes_on()
                    ask(before, "FAILOVER", "TO", *at(after))
                    wait_for(partial(is_master, after), timeout=GUARD)
                    put_in_front(pair, after)
                await sender.goes_on()
                await seldom.send("after", timeout=GUARD)
        assert not told
        for name in ("orders", "seldom"):
            await client.remove(name)


@pytest.mark.usefixtures("sure_of_the_former")
async def test_a_server_that_had_more_than_the_next_one_is_no_witness(pair: Pair, cleanup_namespace: str) -> None:
    """It follows the next one, but had to forget what it had besides. Mutant: whoever follows is a witness."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        async with client.session(ttl=2.0) as session:
            producer = await session.producer("orders")
            await producer.send("kept")
            pair.part()
            await producer.send("lost")
            ask(pair.primary, "REPLICAOF", *at(pair.replica))
            wait_for(lambda: is_linked(pair.primary), timeout=GUARD)
            put_in_front(pair, pair.replica)
            await producer.send("after", timeout=GUARD)
        await wait_until(lambda: [loss.lost for loss in told] == [1], timeout=GUARD, description="told")
        await client.remove("orders")


async def test_a_promotion_that_nobody_asked_for_is_noticed_on_the_way_back_too(
    pair: Pair, cleanup_namespace: str
) -> None:
    """A -> B -> A, with nothing of what B did at A: its state names A still. Mutant: one process is one run."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        async with client.session(ttl=2.0) as session:
            producer = await session.producer("orders")
            await producer.send("kept")
            ask(pair.primary, "FAILOVER", "TO", *at(pair.replica))
            wait_for(lambda: is_master(pair.replica) and is_linked(pair.primary), timeout=GUARD)
            ask(pair.primary, "REPLICAOF", "NO", "ONE")
            put_in_front(pair, pair.replica)
            await producer.send("lost", timeout=GUARD)  # who handed over follows nobody: it is no witness
            put_in_front(pair, pair.primary)
            await producer.send("after", timeout=GUARD)
        await wait_until(lambda: [loss.lost for loss in told] == [0, 1], timeout=GUARD, description="told")
        await client.remove("orders")


async def test_a_connection_from_before_its_server_was_a_replica_is_not_believed(
    pair: Pair, cleanup_namespace: str
) -> None:
    """A -> B -> A while the client is silent: A closed no connection. Mutant: it is used as it is (`SURE_FOR`)."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        async with client.session(ttl=60.0) as session:
            producer = await session.producer("orders")
            await producer.send("kept")
            pair.part()
            lost = await producer.send("lost")
            ask(pair.primary, "REPLICAOF", *at(pair.replica))
            wait_for(lambda: is_linked(pair.primary), timeout=GUARD)  # the client's event loop stands still
            time.sleep(SURE_FOR)  # noqa: ASYNC251 (an idle pair may do all that in less, which is the bound)
            ask(pair.primary, "REPLICAOF", "NO", "ONE")
            assert await producer.send("after", timeout=GUARD) != lost
        await wait_until(lambda: [loss.lost for loss in told] == [1], timeout=GUARD, description="told")
        await client.remove("orders")
