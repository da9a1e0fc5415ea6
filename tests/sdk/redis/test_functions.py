"""Scripts that are called as functions, where a server has them and lets a user; where not, nobody notices."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import redis as plain
import redis.asyncio as plain_asyncio

import headgate
from headgate.redis import functions
from headgate.redis.functions import MOST_LIBRARIES
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.scripts import FUNCTIONS, function_of, script, script_of
from headgate.redis.text.library import PREFIX, Library
from headgate_coordinator.security.acl import acl_line
from tests.support.servers import RedisServer, ServerBinary, newest_server, oldest_and_newest

PASSWORD = "s3cret"
ORDERS = Address.of("default", "orders")


@pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    binary: ServerBinary = request.param
    with RedisServer.start(binary, port=0, persist=True) as server:
        yield server


@pytest.fixture
def modern() -> Iterator[RedisServer]:
    if newest_server().version < (7,):
        pytest.skip("6.2 has no functions")
    with RedisServer.start(newest_server(), port=0, persist=False) as server:
        yield server


class Seller:
    """A session that publishes at its own pace, past the account that a client keeps."""

    def __init__(self, client: headgate.Client) -> None:
        self.store = client.store
        self.account = Account("seller", 1, 0, want=10_000, want_m=1000)
        self.seq = 0

    async def publish(self, *, again: bool = False) -> str:
        if not self.account.epoch:
            found = await self.store.acquire(ORDERS, self.account, ttl_ms=60_000)
            self.account = replace(self.account, epoch=found.epoch, granted=found.granted, need=found.granted)
        self.seq += not again
        return (await self.store.publish(ORDERS, self.account, seq=self.seq, bodies=[b"x"], ttl_ms=60_000)).code


@asynccontextmanager
async def selling(url: str) -> AsyncIterator[Seller]:
    async with headgate.connect(url) as client:
        yield Seller(client)


async def settled(client: headgate.Client) -> None:
    """Make a queue, and have asked what the user may do: the first call finds no question there, the next brings it."""
    for _ in range(2):
        await client.apply("orders", limit=1 << 20, kind="queue")


@pytest.fixture
async def seller(modern: RedisServer) -> AsyncIterator[Seller]:
    async with headgate.connect(modern.url) as client:
        await settled(client)
        found = Seller(client)
        await found.publish()
        yield found


def calls(server: RedisServer) -> dict[str, int]:
    """Return how many calls there were of each command since this was last asked."""
    with plain.Redis.from_url(server.url) as direct:
        stats = direct.info("commandstats")
        direct.config_resetstat()
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}


def libraries(server: RedisServer) -> set[str]:
    with plain.Redis.from_url(server.url, decode_responses=True, protocol=2) as direct:
        return {row[1] for row in direct.function_list()}


def own(name: str) -> str:
    library = script(name).library
    assert library is not None
    return library.name


async def test_what_is_called_for_each_message_is_a_function_where_there_are_such(server: RedisServer) -> None:
    async with headgate.connect(server.url) as client:
        await client.apply("orders", limit=1 << 20, kind="queue")
        async with client.session() as session, client.session() as reader:
            producer, consumer = await session.producer("orders"), await reader.consumer("orders")
            for _ in range(3):
                await producer.send(b"x", timeout=5)
            calls(server)
            for _ in range(3):
                await producer.send(b"x", timeout=5)
                message = await consumer.receive(timeout=5)
                assert message is not None
                await message.accept(confirm=True)
            counted = calls(server)
    assert ("fcall" in counted) == (server.binary.version >= (7,))
    assert ("evalsha" in counted) == (server.binary.version < (7,))


async def test_a_function_that_is_gone_is_loaded_by_the_call_that_misses_it(
    modern: RedisServer, seller: Seller
) -> None:
    with plain.Redis.from_url(modern.url) as direct:
        calls(modern)
        for _ in range(3):
            direct.function_flush("SYNC")
            direct.script_flush()
            assert await seller.publish() == "OK"
            assert libraries(modern) == {own("publish")}
    assert "evalsha" not in calls(modern)


@pytest.mark.whole  # test_a_function_that_is_gone_is_loaded_by_the_call_that_misses_it
async def test_who_flushes_scripts_and_functions_all_the_time_holds_nobody_up(modern: RedisServer) -> None:
    """Each call may miss its script, between any two of its steps. Mutant: LOADS is 0."""
    over = asyncio.Event()

    async def flush() -> None:
        async with plain_asyncio.Redis.from_url(modern.url) as direct:
            while not over.is_set():
                await direct.function_flush("SYNC")
                await direct.script_flush("SYNC")
                await asyncio.sleep(0.02)

    async with headgate.connect(modern.url) as client, client.session() as session:
        await client.apply("orders", limit=2000, kind="queue")
        await client.apply("gate", kind="gate", limit=2)
        storm = asyncio.create_task(flush())
        gate, inside, most = await session.gate("gate"), 0, 0

        async def send(number: int) -> None:
            nonlocal inside, most
            producer = await session.producer("orders", window=1)
            for part in range(5):
                async with gate.admit(timeout=60):
                    inside, most = inside + 1, max(most, inside + 1)
                    await producer.send(f"{number}.{part}".ljust(300), timeout=60)
                    inside -= 1

        senders = [asyncio.create_task(send(number)) for number in range(10)]
        consumer, got = await session.consumer("orders"), list[str]()
        while len(got) < 50:
            message = await consumer.receive(timeout=60)
            assert message is not None
            got.append(str(message.body).strip())
            await message.accept()
        await asyncio.gather(*senders)
        over.set()
        await storm
        seen = await client.store.snapshot(ORDERS)
    assert sorted(got) == sorted(f"{number}.{part}" for number in range(10) for part in range(5))
    assert most == 2
    assert seen is not None
    assert int(seen.fields["peak_bytes"]) <= 2000


async def test_functions_outlive_a_restart_as_data_do(server: RedisServer) -> None:
    if server.binary.version < (7,):
        pytest.skip("6.2 has none")
    async with headgate.connect(server.url) as client:
        await client.apply("orders", limit=1 << 20, kind="queue")
        before = Seller(client)
        for _ in range(2):
            await before.publish()
    server.restart()
    assert own("publish") in libraries(server)


def user(server: RedisServer, rules: str) -> str:
    """Make a user by such rules; returns the URL with which it logs in."""
    with plain.Redis.from_url(server.url) as direct:
        direct.execute_command("ACL", "SETUSER", "app", "reset", "on", f">{PASSWORD}", *rules.split())
    return server.url.replace("//", f"//app:{PASSWORD}@")


def refusals(server: RedisServer) -> list[str]:
    with plain.Redis.from_url(server.url) as direct:
        return [what for entry in direct.acl_log() if not (what := str(entry["object"])).startswith("client")]


async def test_who_may_call_none_calls_scripts_and_nothing_is_logged(modern: RedisServer) -> None:
    async with headgate.connect(modern.url) as admin:
        await admin.apply("orders", limit=1 << 20, kind="queue")
    async with selling(user(modern, "~* &* +@all -fcall")) as seller:
        calls(modern)
        assert [await seller.publish() for _ in range(3)] == ["OK"] * 3
    counted = calls(modern)
    assert counted["evalsha"] >= 4
    assert "fcall" not in counted
    assert refusals(modern) == []


async def test_who_may_load_none_calls_those_that_others_loaded(
    modern: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with headgate.connect(modern.url) as admin:
        await admin.apply("orders", limit=1 << 20, kind="queue")
    async with selling(user(modern, "~* &* +@all -function")) as seller:
        assert [await seller.publish() for _ in range(3)] == ["OK"] * 3
        assert libraries(modern) == set()
        with plain.Redis.from_url(modern.url) as direct:
            library = script("publish").library
            assert library is not None
            direct.function_load(library.source)
        calls(modern)
        assert await seller.publish() == "OK"
        assert "fcall" not in calls(modern), "that it was refused is remembered for a minute"
        monkeypatch.setattr(functions, "AGAIN_AFTER", 0.0)
        await seller.publish()  # by EVALSHA, for it is asked anew
        monkeypatch.setattr(functions, "AGAIN_AFTER", 60.0)
        seller.store.server._lanes["only"]._functions._refused.clear()  # type: ignore[attr-defined]
        calls(modern)
        assert await seller.publish() == "OK"
        assert calls(modern)["fcall"] == 1
    assert refusals(modern) == []


def full(direct: plain.Redis) -> Callable[[], object]:
    direct.config_set("maxmemory", 1)
    return lambda: direct.config_set("maxmemory", 0)


def lonely(direct: plain.Redis) -> Callable[[], object]:
    direct.config_set("min-replicas-to-write", 1)
    return lambda: direct.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize("fault", [full, lonely])
async def test_a_repeated_publish_is_answered_though_redis_refuses_functions(
    modern: RedisServer, seller: Seller, fault: Callable[[plain.Redis], Callable[[], object]]
) -> None:
    """P5. Mutant: `Functions.heal` returns the refusal as answered, in place of leaving the last word to EVALSHA."""
    assert await seller.publish() == "OK"
    with plain.Redis.from_url(modern.url) as direct:
        end = fault(direct)
        assert await seller.publish(again=True) == "DUPLICATE"
        with pytest.raises(headgate.CoordinatorUnavailable):
            await seller.publish()
        end()
    assert await seller.publish(again=True) == "OK"


async def test_libraries_of_other_versions_go_when_there_are_too_many(modern: RedisServer, seller: Seller) -> None:
    others = [Library.of("publish", f"local function run() return {n} end\n") for n in range(MOST_LIBRARIES - 1)]
    with plain.Redis.from_url(modern.url) as direct:
        for other in others[:-1]:
            direct.function_load(other.source)
        direct.function_load("#!lua name=somebodys\nredis.register_function('f', function() return 1 end)")
        assert await seller.publish() == "OK"
        assert {other.name for other in others[:-1]} <= libraries(modern), "those of another version may be in use"
        direct.function_load(others[-1].source)
        direct.function_delete(own("publish"))
        assert await seller.publish() == "OK"
    assert libraries(modern) == {own("acquire"), own("publish"), "somebodys"}


async def test_monitoring_finds_its_scripts_after_a_flush_though_all_others_call_functions(
    modern: RedisServer, seller: Seller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plain.Redis.from_url(modern.url) as direct:
        direct.script_flush()
        await seller.publish()
        assert direct.script_exists(script("snapshot").sha) == [False]
        monkeypatch.setattr(functions, "AGAIN_AFTER", 0.0)
        await seller.publish()
        assert direct.script_exists(script("snapshot").sha) == [True]


@pytest.mark.parametrize("role", ["node", "sdk"])
async def test_roles_with_functions_may_all_that_it_takes(modern: RedisServer, role: str) -> None:
    with plain.Redis.from_url(modern.url) as direct:
        for each in ("node", "sdk"):
            line = acl_line(each, "default", user=each, password=PASSWORD, functions=True)
            direct.execute_command("ACL", "SETUSER", *line.split()[1:])
    async with headgate.connect(modern.url.replace("//", f"//node:{PASSWORD}@")) as node:
        await settled(node)
        nodes = Seller(node)
        for _ in range(3):
            await nodes.publish()
    assert libraries(modern) == {own("acquire"), own("publish")}
    calls(modern)
    async with selling(modern.url.replace("//", f"//{role}:{PASSWORD}@")) as seller:
        seller.account = replace(seller.account, inc=2)
        assert [await seller.publish() for _ in range(3)] != []
    assert calls(modern)["fcall"] >= 2
    assert refusals(modern) == []


def test_only_scripts_that_are_called_all_the_time_are_functions() -> None:
    assert {name for name in FUNCTIONS if not own(name).startswith(f"{PREFIX}{name}_")} == set()
    assert script("snapshot").library is None


def test_to_ask_whether_a_call_is_that_of_a_function_puts_no_script_together() -> None:
    """Mutants: all of them are put together to be found by their shas, which stops a loop; none is found."""
    hot = script("publish")
    script.cache_clear()
    assert function_of("0" * 40) is None
    assert function_of(hot.sha) == hot
    assert script.cache_info().misses == 0


def test_no_script_is_put_together_for_a_sha_alone() -> None:
    """Mutant: all of them are, which keeps a process busy for half a second in the middle of its work."""
    known = script("reap")
    made = script.cache_info().currsize
    assert (script_of(known.sha), function_of(known.sha), script_of("0" * 40)) == (known, None, None)
    assert script.cache_info().currsize == made
