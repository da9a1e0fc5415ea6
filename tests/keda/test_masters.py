"""Streams where there are several servers: told by the master that has the destination, also when it is another."""

import asyncio
import contextlib
import logging

import pytest
from redis.crc import key_slot

import headgate
from headgate.redis.keys import Address
from headgate_coordinator.keda import destination_watch as watching
from tests.faults.deployments import hand_over, move_slot, replicated, watched
from tests.keda.test_scaler import Keda, served
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
NAMES = ("orders", "mails", "bills", "calls")


class Destination:
    """A queue with a sender and a receiver, and the stream of its trigger."""

    def __init__(self, name: str, sender: headgate.Producer, receiver: headgate.Consumer, keda: Keda) -> None:
        self._sender, self._receiver = sender, receiver
        self._stream = keda.stream(destination=name, target=1)
        self._settled = False

    @classmethod
    async def begun(cls, name: str, client: headgate.Client, session: headgate.Session, keda: Keda) -> "Destination":
        await client.apply(name)
        one = cls(name, await session.producer(name), await session.consumer(name), keda)
        assert await one._said() is False
        return one

    async def tells(self) -> None:
        """Have work there, and none again, and hear of both."""
        self._settled = False
        await wait_until(self._send, timeout=60, description="a message is sent")
        assert await self._said() is True
        await wait_until(self._settle, timeout=60, description="it is settled")
        assert await self._said() is False

    async def _send(self) -> bool:
        with contextlib.suppress(headgate.CoordinatorUnavailable, headgate.CreditTimeout):
            await self._sender.send(b"x", timeout=5)
            return True
        return False

    async def _settle(self) -> bool:
        """Settle all that there is: a send without an answer was made again."""
        with contextlib.suppress(headgate.CoordinatorUnavailable):
            while (message := await self._receiver.receive(timeout=1)) is not None:
                await message.accept(confirm=True)
                self._settled = True
        return self._settled

    async def _said(self) -> bool:
        async with asyncio.timeout(25):
            return bool((await self._stream.read()).result)


async def test_on_a_cluster_each_stream_is_told_by_the_master_that_has_its_destination(
    shared_servers: SharedServers, cleanup_namespace: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: the connection goes to any master; that says where the key is, and tells nothing."""
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    monkeypatch.setattr(watching, "UNTOLD", 3600)  # nothing comes of looking now and then
    url = shared_servers.cluster(newest_server()).url
    async with (
        headgate.connect(url, namespace=namespace) as client,
        client.session() as session,
        served(client) as keda,
    ):
        slots = {key_slot(Address.of(client.namespace, name).key.encode()) * 3 // 16384 for name in NAMES}
        assert len(slots) > 1
        for name in NAMES:
            one = await Destination.begun(name, client, session, keda)
            await one.tells()


@pytest.mark.soak
async def test_a_stream_goes_on_when_its_slot_moves_and_when_a_replica_takes_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutant: an answer that the key is elsewhere is taken for a right that is missing."""
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    with replicated() as cluster, caplog.at_level(logging.WARNING):
        async with headgate.connect(cluster.url) as client, client.session() as session, served(client) as keda:
            one = await Destination.begun("orders", client, session, keda)
            await one.tells()
            slot = key_slot(Address.of(client.namespace, "orders").key.encode())
            master, replica = cluster.pair_of(slot)
            targets = [node for node in cluster.masters if node is not master]
            await asyncio.to_thread(move_slot, slot, master, targets[0], targets[1])
            await one.tells()
            await asyncio.to_thread(move_slot, slot, targets[0], targets[1], master)
            await one.tells()
            await hand_over(master, replica)
            await one.tells()
            replica.kill9()
            await one.tells()
    assert "KEDA learns of work" not in caplog.text


@pytest.mark.soak
async def test_behind_sentinels_a_stream_goes_on_at_the_next_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    with watched() as sentinels:
        async with headgate.connect(sentinels.url) as client, client.session() as session, served(client) as keda:
            one = await Destination.begun("orders", client, session, keda)
            await one.tells()
            before = sentinels.master
            sentinels.fail_over()
            await wait_until(lambda: sentinels.master is not before, timeout=60)
            await one.tells()
            sentinels.master.kill9()
            await one.tells()
