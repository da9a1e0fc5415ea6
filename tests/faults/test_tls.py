"""A failover behind TLS: Sentinels and servers with certificates and passwords, and a service with few rights."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

import headgate
from headgate_coordinator.security.acl import acl_line
from tests.faults.traffic import GUARD, Holder, Inside, Receiver, Sender
from tests.sdk.session.test_transports import SECRET, certificate, over_tls, server
from tests.support.ports import own_port
from tests.support.waiting import wait_for, wait_until

__all__ = ["certificate"]
pytestmark = pytest.mark.one_server
LIMIT = 4


@dataclass
class Secured:
    """A master, its replica and a Sentinel, which speak nothing but TLS, with passwords of their own."""

    folder: Path
    ports: tuple[int, int]
    sentinel: int
    dies: dict[int, ExitStack]

    asked: dict[int, Any]
    """A client of each, by port: a greeting of TLS costs more than a question."""

    def ask(self, port: int, *words: Any) -> Any:
        if port not in self.asked:
            files = {"ssl_ca_certs": "cert.pem", "ssl_certfile": "cert.pem", "ssl_keyfile": "key.pem"}
            files = {name: str(self.folder / file) for name, file in files.items()}
            secret = None if port == self.sentinel else SECRET
            self.asked[port] = redis.Redis(port=port, password=secret, ssl=True, socket_timeout=5, **files)  # type: ignore[arg-type]
        return self.asked[port].execute_command(*words)

    @property
    def master(self) -> int:
        return int(self.ask(self.sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])

    @property
    def url(self) -> str:
        files = f"ca_file={self.folder}/cert.pem&cert_file={self.folder}/cert.pem&key_file={self.folder}/key.pem"
        return f"rediss+sentinel://hg-shop-sdk:{SECRET}-sdk@127.0.0.1:{self.sentinel}/main?{files}"

    def is_linked(self) -> bool:
        """Tell whether the other server follows the master, and the Sentinel knows it."""
        with suppress(redis.RedisError):
            info = self.ask(self.master, "INFO", "replication")
            return info["connected_slaves"] == 1 and len(self.ask(self.sentinel, "SENTINEL", "REPLICAS", "main")) == 1
        return False

    def hands_over(self) -> bool:
        """Ask for another master; a busy Sentinel may not yet know that the replica would do."""
        with suppress(redis.RedisError):
            return bool(self.ask(self.sentinel, "SENTINEL", "FAILOVER", "main"))
        return False


@pytest.fixture
def secured(certificate: Path, tmp_path: Path) -> Iterator[Secured]:
    del certificate  # is in the folder
    first, second, watch = own_port(), own_port(), own_port()
    user = acl_line("sdk", "shop", password=f"{SECRET}-sdk").removeprefix("user ").split()
    (tmp_path / "sentinel.conf").write_text(
        f"sentinel monitor main 127.0.0.1 {first} 1\nsentinel auth-pass main {SECRET}\n"
        "sentinel down-after-milliseconds main 3000\nsentinel failover-timeout main 3000\n"
    )
    with ExitStack() as stack:
        stacks = {}
        for port in (first, second):
            folder = tmp_path / str(port)
            folder.mkdir()
            for file in ("cert.pem", "key.pem"):
                (folder / file).write_bytes((tmp_path / file).read_bytes())
            follows = ["--replicaof", "127.0.0.1", str(first)] if port == second else []
            stacks[port] = stack.enter_context(ExitStack())
            secrets = ["--requirepass", SECRET, "--masterauth", SECRET, "--user", *user]
            settings = [*over_tls(port), *secrets, "--save", "", "--repl-diskless-sync-delay", "0", *follows]
            stacks[port].enter_context(server(folder, *settings, port=port))
        stack.enter_context(server(tmp_path, "sentinel.conf", "--sentinel", *over_tls(watch), port=watch))
        secured = Secured(tmp_path, (first, second), watch, stacks, {})
        wait_for(secured.is_linked, timeout=GUARD, description="the replica is linked")
        yield secured
        for client in secured.asked.values():
            client.close()


@pytest.mark.longest
@pytest.mark.usefixtures("patient")
async def test_a_service_behind_tls_follows_each_failover(secured: Secured) -> None:
    """The master is replaced while it lives, and then the next one dies. Each loss is told, and the gate holds."""
    told: list[headgate.StateLoss] = []
    inside = Inside()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        client = await enter(headgate.connect(secured.url, namespace="shop"))
        client.on_state_loss(told.append)
        await client.apply("door", kind="gate", limit=LIMIT)
        session = await enter(client.session("s", ttl=10.0))
        receiver = await enter(Receiver(await session.consumer("orders")))
        sender = await enter(Sender(await session.producer("orders")))
        gate = await session.gate("door")
        holders = [await enter(Holder(gate, inside)) for _ in range(2 * LIMIT)]
        await sender.goes_on()
        before = secured.master
        await wait_until(secured.hands_over, timeout=GUARD, description="the Sentinel agrees")
        await wait_until(lambda: secured.master != before, timeout=GUARD, description="another one is in charge")
        await sender.goes_on()
        await wait_until(secured.is_linked, timeout=GUARD, description="the one of before follows")
        after = secured.master
        await asyncio.to_thread(secured.dies[after].close)
        await wait_until(lambda: secured.master != after, timeout=GUARD, description="it is back in charge")
        await asyncio.gather(*(worker.goes_on() for worker in (sender, receiver, *holders)))
        await sender.end()

        async def drained() -> bool:
            with suppress(headgate.CoordinatorUnavailable):
                return (await client.recount("orders")).stored[1] == 0
            return False

        # `patient`: a call to whoever died has half a minute, and so has the connection after it.
        await wait_until(drained, timeout=3 * GUARD, description="all was received")
        lost = set(sender.sent) - set(receiver.got)
    assert len(lost) <= sum(loss.lost for loss in told if loss.destination == "orders")
    assert inside.most <= LIMIT
