"""The ACL of each role, loaded by a real Redis from a file: its whole job goes, all else is refused."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as plain

import headgate
from headgate import policy
from headgate.errors import AccessDenied, InvalidName, InvalidValue
from headgate.redis.scripts import script, script_names
from headgate.redis.stores.sliced_reads import every_slice
from headgate_coordinator.cli.watching import look
from headgate_coordinator.operate import audit, status
from headgate_coordinator.security.acl import ROLES, Role, acl_line, commands_of, scripts_of
from headgate_coordinator.security.document import User, check_user
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from tests.support.servers import RedisServer, ServerBinary, newest_server, oldest_and_newest
from tests.support.waiting import wait_until

SDK = Path(__file__).resolve().parents[2] / "sdk" / "headgate"
PASSWORD = "s3cret"
POLICY = """
[[destination]]
match = "orders"
limit = "1MiB"
[[pool]]
name = "memory"
limit = "10MiB"
[[store]]
name = "disk"
url = "memory://acl"
limit = "1MiB"
"""


class Guarded:
    def __init__(self, redis: RedisServer) -> None:
        self.redis = redis

    def url(self, user: str) -> str:
        return self.redis.url.replace("redis://", f"redis://{user}:{PASSWORD}@")

    def client(self, role: Role, namespace: str = "shop") -> headgate.Client:
        return headgate.connect(self.url(f"hg-shop-{role}"), namespace=namespace)

    def denied(self) -> list[str]:
        """Return what was refused so far, but for the name of the library, which redis-py says without need."""
        with plain.Redis.from_url(self.url("root")) as root:
            refused = [str(entry["object"]) for entry in root.acl_log()]
        return [what for what in refused if not what.startswith("client")]


@pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    binary: ServerBinary = request.param
    file = tmp_path / "users.acl"
    lines = [acl_line(role, "shop", password=PASSWORD) for role in ROLES]
    lines.append(acl_line("sdk", "shop", user="of-a-cluster", cluster=True))  # at least it loads
    file.write_text("\n".join([f"user root on >{PASSWORD} ~* &* +@all", *lines]) + "\n")
    with RedisServer.start(binary, port=0, persist=False, config={"aclfile": str(file)}) as redis:
        yield Guarded(redis)


async def exchange(client: headgate.Client) -> None:
    """Do what a service does with every kind of destination."""
    await client.apply("orders", limit="1MiB", max_attempts=2, dead_letter="dead")
    await client.apply("news.eu", kind="topic")
    await client.apply("emails", kind="bucket", rate=1000, burst=10)
    await client.apply("slots", kind="gate", limit_messages=2)
    await client.set_store("disk", "memory://acl", limit="1MiB")
    await client.apply("large", limit="1KiB", when_full="spool", store="disk")
    async with client.session("spooler") as session:
        producer = await session.producer("large")
        for _ in range(4):
            await producer.send(b"x" * 500)
        large = await session.consumer("large")
        for _ in range(4):
            message = await large.receive(timeout=10)
            assert message is not None
            await message.accept(confirm=True)
        await wait_until(lambda: _swept(client), description="the segments are deleted")
    async with client.session("teller") as session, client.session("reader") as reader:
        producer, consumer = await session.producer("orders"), await reader.consumer("orders")
        for body in (b"one", b"two", b"three"):
            await producer.send(body)
        settled = 0
        while settled < 4:
            message = await consumer.receive(timeout=10)
            assert message is not None
            if settled == 0:
                await message.release()
            else:
                await message.accept(confirm=True)
            settled += 1
        wild = await reader.consumer("news.*", subscription="all")
        news = await session.producer("news.eu")
        await news.send(b"late")
        message = await wild.receive(timeout=10)
        assert message is not None
        await message.accept(confirm=True)
        gate = await session.gate("slots")
        async with gate.admit():
            pass
        bucket = await session.bucket("emails")
        await bucket.take(1)
    await spread(client)


async def spread(client: headgate.Client) -> None:
    """Fill a queue over three slots, as a service does that has to wait at each of them for what others hold."""
    await client.apply("wide", limit=1000, limit_messages=1, slices=3)
    async with client.session() as a, client.session() as b, client.session() as c:
        consumer = await a.consumer("wide")
        for session in (a, b, c) * 2:
            await (await session.producer("wide")).send(b"x" * 700, timeout=30)
            message = await consumer.receive(timeout=30)
            assert message is not None
            await message.accept()
    assert (
        len([name for name in await every_slice(client.store.server, client.namespace) if name.startswith("wide")]) == 3
    )


async def _swept(client: headgate.Client) -> bool:
    return not (await client.stores())[0].segments


async def single_messages(client: headgate.Client) -> None:
    """Delete one message and move another."""
    await client.apply("dead", limit="1MiB")
    async with client.session() as session:
        producer = await session.producer("dead")
        first, second = [await producer.send(b"x") for _ in range(2)]
    await client.delete_message("dead", first.id)
    await client.move_message("dead", second.id, "orders")
    assert await client.end_moves("dead") == 0
    await client.remove("dead")


async def operate(client: headgate.Client) -> None:
    """Do what the command line does."""
    await client.apply("orders", limit="1MiB")
    await client.apply("news.us", kind="topic")
    await client.apply_policy(policy.loads(POLICY))
    await client.block("orders", "disk")
    await client.unblock("orders")
    await client.explain("orders")
    await client.set_pool("disk", limit="1MiB")
    await client.remove_pool("disk")
    await client.pools()
    await client.set_store("other", "memory://other", limit="1MiB")
    await client.remove_store("other")
    assert await client.stores()
    await audit.audit(client, repair=True)
    await status.collect(client)
    assert [message async for message in client.browse("orders")] == []
    await single_messages(client)
    await client.purge("orders")
    await client.remove("news.us")
    await client.apply("broad", limit="1MiB", slices=2)
    await client.apply("broad", limit="2MiB", slices=4)
    await client.explain("broad")
    assert [message async for message in client.browse("broad")] == []
    assert await client.purge("broad") == 0
    assert (await client.recount("broad")).equal
    await client.remove("broad")


async def test_the_sdk_does_all_that_a_service_does(guarded: Guarded) -> None:
    async with guarded.client("sdk") as client:
        await exchange(client)
        await operate(client)
        for name in await client.destinations():
            await client.remove(name)
    assert guarded.denied() == []


async def test_a_node_does_that_and_keeps_users(guarded: Guarded) -> None:
    async with guarded.client("node") as client:
        await exchange(client)
        await operate(client)
        store = UserStore(client.store.server, "shop")
        user = User(password_hash=hashed("x"))
        await store.change(lambda users: users.update(ann=user))
        assert (await store.read()).users == {"ann": user}
    assert guarded.denied() == []


async def test_an_operator_does_what_the_command_line_does(guarded: Guarded) -> None:
    async with guarded.client("node") as node:
        await exchange(node)
    async with guarded.client("operator") as client:
        await operate(client)
        await UserStore(client.store.server, "shop").change(lambda users: users.update(anonymous=User()))
    assert guarded.denied() == []


async def test_metrics_only_look(guarded: Guarded) -> None:
    async with guarded.client("sdk") as client:
        await client.apply("orders", limit="1MiB", pools="memory")
        await client.set_pool("memory", limit="1MiB")
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}})
        await spread(client)
    async with guarded.client("sdk") as service, service.session() as session, guarded.client("metrics") as client:
        limiter = await session.limiter("llm", in_hand=False)
        hold = await limiter.admit(slots=1, key="t1")
        waiting = asyncio.create_task(limiter.admit(slots=1, key="t1", timeout=60).__aenter__())

        async def in_line() -> bool:
            return (await limiter.state()).waiting == 1

        await wait_until(in_line)
        assert [told.state for told in await status.collect(client)] != []
        assert [pool.name for pool in await client.pools()] == ["memory"]
        assert await client.stores() == []
        told = await client.explain("llm", key="t1")
        assert (told.blocked, told.cause) == (1, "limit-at-once")
        await client.explain("orders")
        assert (await client.explain("wide")).limits[0].limit == 1000
        assert (await client.policy()).version == 0
        assert guarded.denied() == []
        seen = await look(client)
        assert (sorted(one.destination for one in seen.found), seen.links) == (["llm", "orders", "wide"], [])
        with pytest.raises(AccessDenied, match="headgate acl"):
            await client.purge("orders")
        with pytest.raises(AccessDenied, match="headgate acl"):
            await client.apply("orders", limit="2MiB")
        assert "of 1048576" in str(await client.explain("orders"))
        hold.release()
        (await waiting).release()


async def test_metrics_load_no_script_and_see_once_somebody_else_has_called_one(guarded: Guarded) -> None:
    """Who may load a script may load one that never ends. Mutant: others load what they call alone."""
    async with guarded.client("sdk") as client:
        await client.apply("orders", limit="1MiB")
    with plain.Redis.from_url(guarded.url("root")) as root:
        root.script_flush()
    with plain.Redis.from_url(guarded.url("hg-shop-metrics")) as metrics:
        for words in (("SCRIPT", "LOAD", "while true do end"), ("EVAL", "return 1", 0), ("FCALL", "f", 0)):
            with pytest.raises(plain.exceptions.ResponseError, match=r"permissions|unknown command"):
                metrics.execute_command(*words)
    async with guarded.client("metrics") as client:
        with pytest.raises(AccessDenied, match="'snapshot' is loaded by the first node or service"):
            await client.explain("orders")
        async with guarded.client("sdk") as other:
            await other.apply("orders", limit="2MiB")  # any script
        assert "of 2097152" in str(await client.explain("orders"))


@pytest.mark.parametrize("role", ROLES)
async def test_another_namespace_is_out_of_reach(guarded: Guarded, role: Role) -> None:
    async with guarded.client(role, "bank") as client:
        with pytest.raises(AccessDenied, match="headgate acl"):
            await client.explain("orders")
        with pytest.raises(AccessDenied):
            await client.apply("orders", limit="1MiB")
    async with guarded.client(role, "shop-2") as client:
        with pytest.raises(AccessDenied):
            await client.explain("orders")


@pytest.mark.parametrize("role", ["sdk", "metrics"])
async def test_services_cannot_see_who_has_which_password(guarded: Guarded, role: Role) -> None:
    async with guarded.client(role) as client:
        with pytest.raises(AccessDenied):
            await UserStore(client.store.server, "shop").read()


@pytest.mark.parametrize("role", ROLES)
def test_no_role_administers_redis(role: Role) -> None:
    dangerous = {"flushall", "flushdb", "config", "acl", "keys", "eval", "debug", "shutdown", "script", "monitor"}
    assert dangerous & set(commands_of(role)) == set()


async def test_every_command_of_every_script_is_found() -> None:
    """Whatever in a script is the name of a command of Redis is allowed, however it comes to be called."""
    with RedisServer.start(newest_server(), persist=False) as server, plain.Redis.from_url(server.url) as client:
        commands = {name.upper() for name in client.command()}
    for name in script_names():
        words = set(re.findall(r"(?<!return \{ )'([A-Z]{2,})'", script(name).source))  # that would be a code
        allowed = {command.split("|")[0].upper() for command in commands_of("node")}
        assert words & commands <= allowed, name
        assert {word.split("|")[0] for word in commands_of("sdk")} >= {
            word.lower() for word in words & commands if name in scripts_of("sdk")
        }


def test_every_command_that_the_sdk_sends_itself_is_allowed() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in SDK.rglob("*.py"))
    sent = set(re.findall(r"\.(?:command|everywhere)\((?:[\w.\[\]()]+, )?\"([A-Z]+)\"", source))
    sent |= set(re.findall(r"\(b\"([A-Z]+)\", key", source)) | set(re.findall(r"send_command\(\"([A-Z]+)\"", source))
    assert {"HGETALL", "XRANGE", "HMGET", "INFO"} <= sent
    free = {"CONFIG", "ASKING", "FUNCTION"}  # done without where it is refused; a cluster's; after a look at the rights
    for role in ROLES:
        assert {word.lower() for word in sent - free} <= set(commands_of(role)), role


def test_a_user_without_a_password_is_off_and_no_password_is_printed() -> None:
    assert " off resetchannels " in acl_line("sdk", "shop")
    assert PASSWORD not in acl_line("sdk", "shop", password=PASSWORD)
    assert acl_line("sdk", "shop", user="billing").startswith("user billing off ")
    with pytest.raises(InvalidValue, match="without blanks"):
        acl_line("sdk", "shop", user="a b")
    with pytest.raises(InvalidValue, match="is empty"):
        acl_line("sdk", "shop", password="")
    with pytest.raises(InvalidName):
        acl_line("sdk", "shop*")


def test_a_cluster_takes_more() -> None:
    assert set(commands_of("sdk", cluster=True)) - set(commands_of("sdk")) == {
        "cluster|slots", "cluster|shards", "cluster|nodes", "command", "asking",
    }  # fmt: skip


def test_a_name_of_10_kb_is_not_repeated_whole_and_a_namespace_is_called_one() -> None:
    for wrong in ("a" * 10_000, "a\x01b"):
        with pytest.raises(InvalidName, match=r"^namespace 'a.*: use 1 to 63 of a-z, 0-9 and '-'$") as caught:
            acl_line("node", wrong, password="x")
        assert len(str(caught.value)) < 200
    for wrong in ("a" * 10_000, "a b"):
        with pytest.raises(InvalidName, match=r"^user 'a.*: use 1 to 80 of") as caught:
            check_user(wrong)
        assert len(str(caught.value)) < 200
