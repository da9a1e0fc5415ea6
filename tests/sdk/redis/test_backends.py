"""The state may be reached another way than over a connection to Redis: all that the SDK needs of it is a Backend."""

from collections.abc import Sequence
from typing import Any

import pytest

import headgate
from headgate import InvalidValue, Window
from headgate.backends import BackendUrl, place_of
from headgate.core.addresses.url_options import take_options
from headgate.core.durability import Durability, WriteProgress
from headgate.redis.backend import Backend, WakeUps
from headgate.redis.scripts import Script
from tests.sdk.observing import drain, outgoing


class Relay:
    """A backend that has nothing but what the protocol names, and hands it on."""

    def __init__(self, behind: Backend) -> None:
        self._behind = behind
        self.version: tuple[int, ...] = ()
        self.calls = 0
        self.session_prefix = ""
        self.reaches_stores = self.spools = True
        self.waited = behind.waited
        self.line_timeout = behind.line_timeout

    async def open(self) -> None:
        await self._behind.open()
        self.version = self._behind.version

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        self.calls += 1
        return await self._behind.call(script, keys, argv)

    def promise(self, durability: Durability) -> None:
        self._behind.promise(durability)

    async def secure(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], durability: Durability, within_ms: int
    ) -> tuple[Any, WriteProgress]:
        return await self._behind.secure(script, keys, argv, durability, within_ms)

    async def command(self, key: bytes, *args: Any) -> Any:
        return await self._behind.command(key, *args)

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        return await self._behind.burst(commands)

    def place(self, key: bytes) -> str:
        return self._behind.place(key)

    async def scan(self, pattern: str) -> list[str]:
        return await self._behind.scan(pattern)

    async def everywhere(self, *args: Any) -> list[Any]:
        return await self._behind.everywhere(*args)

    def wake_ups(self) -> WakeUps:
        return self._behind.wake_ups()

    async def close(self) -> None:
        await self._behind.close()


async def test_a_client_goes_the_way_that_the_scheme_of_its_url_names(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relays: list[Relay] = []

    def way(url: str) -> BackendUrl:
        options, _ = take_options(url.partition("?")[2])

        def relay() -> Relay:
            relays.append(Relay(place_of(redis_url).backend()))
            return relays[-1]

        return BackendUrl("relay://there", options, relay)

    monkeypatch.setattr("headgate.backends._WAYS", {"relay": way})
    there = headgate.connect("relay://user:secret@there?consumer_window=7", namespace=cleanup_namespace)
    assert repr(there) == f"Client('relay://there', namespace={cleanup_namespace!r})"
    async with there as client, client.session("s") as session:
        assert client.redis_url == "relay://there"
        await client.set_pool("memory", limit=10_000)
        await client.apply("orders", limit=100, pools="memory")
        producer, consumer = await session.producer("orders", window=100), await session.consumer("orders")
        assert consumer.window == Window(7)
        await producer.send("x" * 90)
        inflow = await session.inflow("orders", window=100, kind="queue")
        blocked = outgoing("y" * 90)
        inflow.put([blocked])
        assert (await drain(consumer, 1))[0].body == "x" * 90
        assert (await blocked.done).seq == 2
        assert [pool.name for pool in await client.pools()] == ["memory"]
        assert await client.destinations() == ["orders"]
        await client.remove("orders")
        await client.remove_pool("memory")
    (relay,) = relays
    assert relay.version >= (6, 2)
    assert relay.calls > 3


def test_a_scheme_that_nobody_knows_is_refused_and_a_password_is_not_shown() -> None:
    with pytest.raises(InvalidValue, match="URL scheme 'carrier' is unknown") as caught:
        place_of("carrier://user:secret@pigeon")
    assert "secret" not in str(caught.value)


def test_options_are_taken_out_of_a_query_and_the_rest_is_left() -> None:
    options, rest = take_options("producerWindowSize=10&ca_file=&heartbeat=5")
    assert (options.producer_window, rest) == (10, {"ca_file": "", "heartbeat": "5"})
    with pytest.raises(InvalidValue, match="consumer_window"):
        take_options("consumer_window=0")
