"""What of a node's host and network a policy reaches: what its operator opens, and nothing else."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import headgate
from headgate import InvalidValue
from headgate.core.links.link import Site
from headgate.policy import loads
from headgate.redis.url import FILES, parse_url
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from headgate_coordinator.security.policy_reach import PolicyReach
from headgate_coordinator.service.service import service
from tests.amqp.nodes import NodeProcess
from tests.support.spooled import fill, segments, swept
from tests.support.waiting import wait_until

SECRET = "s3cr3t-of-the-host"


def site(url: str) -> Site:
    return Site("berlin", url)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with a folder that is open to policies, and files that are not."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "url").write_text(f"redis://hg:{SECRET}@berlin:6379\n")
    (tmp_path / "open" / "password").write_text(SECRET)
    (tmp_path / "open" / "out").symlink_to(tmp_path / "shadow")
    (tmp_path / "open" / "circle").symlink_to(tmp_path / "open" / "circle")
    (tmp_path / "open" / "..data").mkdir()
    (tmp_path / "open" / "..data" / "url").write_text("redis://berlin")
    (tmp_path / "open" / "mounted").symlink_to(Path("..data") / "url")
    os.mkfifo(tmp_path / "open" / "pipe")
    (tmp_path / "shadow").write_text(SECRET)
    (tmp_path / "opened").write_text(SECRET)
    return tmp_path


def test_urls_come_from_the_variables_and_files_that_are_open(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SITE_BERLIN", "rediss://berlin?ca_file=/anywhere")
    reach = PolicyReach(secrets=host / "open")
    assert reach.url_of(site("env:HEADGATE_SITE_BERLIN")) == "rediss://berlin?ca_file=/anywhere", "the operator's"
    for file in ("file:url", f"file:{host}/open/url", "file:../open/url"):
        assert reach.url_of(site(file)) == f"redis://hg:{SECRET}@berlin:6379"
    assert reach.url_of(site("file:mounted")) == "redis://berlin"


@pytest.mark.parametrize(
    "url",
    ["file:../shadow", "file:{0}/shadow", "file:out", "file:../opened", "file:/etc/passwd", "file:/proc/self/environ",
     "file:circle", "file:a\0b", "file:..", "file:pipe", "file:", "env:HOME", "env:HEADGATE_URL", "env:",
     "env:HEADGATE_SITE_", "env:HEADGATE_SITE_X\n", "redis://evil", "redis://berlin:6380", "redis://berlin,evil",
     "redis+cluster://berlin,evil", "redis+sentinel://evil/main", "redis://x@evil", "redis://berlin@evil:6379",
     "unix:///run/redis.sock", "redis://berlin?password_file=/etc/passwd", "redis://berlin?password_file=../shadow",
     "redis://berlin?password_file=password&password_file=../shadow", "rediss://berlin?ca_file=../shadow",
     "rediss://berlin?cert_file=password&key_file=out", "redis://berlin#@evil", "redis://berlin/0#?x",
     "redis+sentinel://berlin/x?sentinel_password_file=../shadow",
     "redis+sentinel://berlin/x?sentinel_password_file=/etc/passwd",
     "redis://berlin?password_fil%65=../shadow", "amqp://berlin", "http://berlin", "redis://"],
)  # fmt: skip
def test_nothing_else_is_read_or_connected_to(host: Path, url: str) -> None:
    """A mutant that does not follow symbolic links, compares paths as text, or looks at the first host only."""
    with pytest.raises(InvalidValue) as refused:
        PolicyReach(host / "open", ("berlin",)).url_of(site(url.format(host)))
    assert SECRET not in str(refused.value)


def test_all_options_that_name_files_are_looked_at() -> None:
    """A mutant that forgets one lets a policy read any file of the node."""
    with pytest.raises(InvalidValue, match="is unknown") as refused:
        parse_url("redis+sentinel://a/x?unknown=1")
    assert set(re.findall(r"\w+_file", str(refused.value))) == FILES


def test_a_refusal_does_not_tell_what_files_there_are(host: Path) -> None:
    told = set()
    for name in ("../shadow", "../nothing"):
        with pytest.raises(InvalidValue) as refused:
            PolicyReach(host / "open").url_of(site(f"file:{name}"))
        told.add(str(refused.value).replace(name, ""))
    assert len(told) == 1


def test_a_url_in_a_policy_leads_to_open_hosts_with_files_of_the_open_folder(host: Path) -> None:
    reach = PolicyReach(host / "open", ("berlin", "rome:7000", "[::1]:7", "/run/redis.sock"))
    for url in ("redis://berlin", "redis://hg@BERLIN:6379/2", "redis+sentinel://berlin/main", "redis://rome:7000",
                "redis://[::1]:7", "unix:///run/redis.sock", "redis+cluster://berlin,rome:7000"):  # fmt: skip
        assert reach.url_of(site(url)) == url
    assert reach.url_of(site("redis://berlin?password_file=password&consumer_window=5")) == (
        f"redis://berlin?password_file={host}/open/password&consumer_window=5".replace("/", "%2F").replace(
            "redis:%2F%2F", "redis://"
        )
    )
    with pytest.raises(InvalidValue, match="may lead this node to 'redis://rome'"):
        reach.url_of(site("redis://rome"))
    with pytest.raises(InvalidValue, match="expected host"):
        PolicyReach(hosts=("berlin:port",))


def test_stores_are_below_roots_that_are_open(tmp_path: Path) -> None:
    """A mutant that compares URLs as text, or does not follow symbolic links."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "out").symlink_to("/etc")
    reach = PolicyReach(stores=(f"file://{tmp_path}/spool", "s3://bucket/headgate", "memory://"))
    for url in (f"file://{tmp_path}/spool", f"local://{tmp_path}/spool/a/", f"file://{tmp_path}/spool/../spool/b",
                "s3://bucket/headgate/x", "s3://bucket/headgate", "memory://any"):  # fmt: skip
        reach.check_store(url)
    for url in ("file:///", "file:///etc", f"file://{tmp_path}", f"file://{tmp_path}/spooled", "s3://bucket",
                f"file://{tmp_path}/spool/out/x", f"file://{tmp_path}/spool/../x", "s3://other/headgate", "sftp://h/a",
                "s3://bucket/headgate/../x", "s3://bucket/headgate/%2e%2e/x", "s3a://bucket/headgate", "file://etc",
                f"file://{tmp_path}/spool::file:///etc",
                "s3://bucket/headgate::file:///etc", "s3://bucket/hea"):  # fmt: skip
        with pytest.raises(InvalidValue, match="--store-root"):
            reach.check_store(url)
        with pytest.raises(InvalidValue):
            PolicyReach().check_store(url)
    PolicyReach(stores=("file:///",)).check_store("file:///any/where")


async def _listening(got: bytearray) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            got.extend(data)
            writer.write(b"-ERR no\r\n" * data.count(b"\r\n*"))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


@pytest.mark.one_server
async def test_a_node_tells_no_host_of_a_policy_what_is_in_its_files(
    redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    """As it comes: without options nobody is connected to; an open host gets what is in the open folder."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "berlin").write_text("for-berlin")
    got = bytearray()
    server = await _listening(got)
    port = server.sockets[0].getsockname()[1]
    policy = (
        'site_name = "paris"\n[[site]]\nname = "berlin"\nurl = "redis://127.0.0.1:{}?password_file={}"\n'
        '[[route]]\nname = "r"\nto = "berlin"\nqueues = "orders"\n'
    )
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:

        async def trouble(words: str) -> bool:
            return any(words in (link.trouble or "") for link in await list_links(client))

        await client.apply_policy(loads(policy.format(port, tmp_path / "secret")))
        node = NodeProcess(redis_url, cleanup_namespace, tmp_path / "log").ready()
        await wait_until(lambda: trouble("--site-host"), timeout=80, description="the node says what is not open")
        assert not got
        node.stop()
        chosen = ("--site-host", f"127.0.0.1:{port}", "--site-secrets", str(tmp_path / "open"))
        node = NodeProcess(redis_url, cleanup_namespace, tmp_path / "log", *chosen).ready()
        await wait_until(lambda: trouble("--site-secrets"), timeout=80, description="the node says what is not open")
        assert not got
        await client.apply_policy(loads(policy.format(port, "berlin")))
        await wait_until(lambda: b"for-berlin" in got, timeout=80, description="the site is asked")
        node.stop()
        await client.apply_policy(loads("destination = []"))
    server.close()
    assert SECRET.encode() not in got


@pytest.mark.one_server
async def test_a_node_writes_to_no_folder_that_is_not_open(
    redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    policy = (
        f'[[store]]\nname = "disk"\nurl = "file://{tmp_path}/spool"\nlimit = "1MB"\n'
        '[[destination]]\nmatch = "orders"\nlimit = "10kB"\nwhen_full = "spool"\nstore = "disk"\n'
    )
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(loads(policy))
        await fill(client, 60)
        stored = segments(tmp_path / "spool")
        assert stored
        for _ in range(2):  # what was refused once is not remembered as good
            async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
                options = NodeOptions(port=0, reach=PolicyReach(stores=(f"file://{tmp_path}/other",)))
                async with service(behind, options, Users.from_redis, None):
                    with pytest.raises(InvalidValue, match="--store-root"):
                        await behind.parts.registry.spooling.spools.get("disk")
                options = replace(options, reach=PolicyReach(stores=(f"file://{tmp_path}",)))
                async with service(behind, options, Users.from_redis, None):
                    await behind.parts.registry.spooling.spools.get("disk")
        assert segments(tmp_path / "spool") == stored
        await client.purge("orders")
        await swept(tmp_path / "spool")


@pytest.mark.one_server
async def test_the_policy_of_another_site_opens_no_folder_either(
    redis_url: str, cleanup_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when only the node's own client asks what is open."""
    monkeypatch.setenv("HEADGATE_SITE_BERLIN", redis_url)
    berlin = site("env:HEADGATE_SITE_BERLIN")
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as there:
        await there.set_store("disk", f"file://{tmp_path}/spool", limit="1MB")
        for roots, opened in (((), False), ((f"file://{tmp_path}",), True)):
            sites = Sites(cleanup_namespace, PolicyReach(stores=roots))
            spools = (await sites.client(berlin)).parts.spooling.spools
            if opened:
                await spools.get("disk")
            else:
                with pytest.raises(InvalidValue, match="--store-root"):
                    await spools.get("disk")
            assert (tmp_path / "spool").exists() is opened
            await sites.close()
