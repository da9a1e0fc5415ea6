"""The servers, the waiting and the leak check that other tests stand on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio

from headgate.redis.keys import Address
from tests.support import servers
from tests.support.audited import audited
from tests.support.cluster import SLOTS, RedisCluster3
from tests.support.extent import each, share_of
from tests.support.leaks import delete_namespace, describe, take_leftovers
from tests.support.servers import RedisServer, ServerBinary, available_servers, newest_server, oldest_and_newest
from tests.support.shared import SharedServers
from tests.support.waiting import is_alive, wait_for, wait_until

pytest_plugins = ["pytester"]


def test_each_case_of_a_table_is_tried_whichever_fails() -> None:
    tried: list[tuple[int, str]] = []

    @each("word", ["a", "b"])
    @each("number", [1, 2, 3])
    def looked_at(number: int, word: str) -> None:
        tried.append((number, word))
        assert number == 2, "odd"

    with pytest.raises(BaseExceptionGroup) as caught:
        looked_at()
    assert tried == [(1, "a"), (2, "a"), (3, "a"), (1, "b"), (2, "b"), (3, "b")]
    first = caught.value.exceptions[0]
    assert first.__notes__ == ["in the case 'a'"]
    assert isinstance(first, BaseExceptionGroup)
    assert [error.__notes__ for error in first.exceptions] == [["in the case 1"], ["in the case 3"]]


def test_each_server_runs_all_tests_but_those_in_which_it_makes_no_difference() -> None:
    tests = Path(__file__).parents[2]
    kept = {
        path.parent.relative_to(tests).as_posix()
        for path in tests.rglob("test_*.py")
        if not any(servers.pytest_ignore_collect(one) for one in (path, *path.parents))
    }
    named = {"amqp", "amqp/doors", "deadlock", "doctor", "embedded", "faults", "links/forwarding", "remote", "security"}
    assert named <= kept
    assert {folder.name for folder in (tests / "lua").iterdir() if any(folder.glob("test_*.py"))} <= {
        path.rpartition("/")[2] for path in kept if path.startswith("lua/")
    }
    assert not kept & servers.ELSEWHERE.keys()
    assert [name for name in servers.ELSEWHERE if not (tests / name).exists()] == []
    assert servers.pytest_ignore_collect(tests / "new" / "test_new.py") is None, "what is new is among them"


class TestWaiting:
    async def test_returns_the_first_true_value_sync_or_async(self) -> None:
        values = iter([0, 0, 7])

        async def later() -> int:
            return next(values)

        assert await wait_until(later) == 7
        assert wait_for(lambda: "x") == "x"
        assert await wait_until(lambda: "x") == "x"

    async def test_failure_says_what_was_awaited_and_what_was_seen(self) -> None:
        with pytest.raises(AssertionError, match=r"not within 0.02 s: the flood; last value: 0"):
            await wait_until(lambda: 0, timeout=0.02, description="the flood")
        with pytest.raises(AssertionError, match=r"the flood; last value: \[\]"):
            wait_for(list, timeout=0.02, description="the flood")

    async def test_a_predicate_that_hangs_does_not_hang_the_test(self) -> None:
        with pytest.raises(AssertionError, match="no answer"):
            await wait_until(asyncio.Event().wait, timeout=0.02)


class TestRedisServer:
    @pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
    def server(self, request: pytest.FixtureRequest) -> Iterator[RedisServer]:
        with RedisServer.start(request.param) as server:
            yield server

    def test_what_was_answered_survives_kill9(self, server: RedisServer) -> None:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
            before = server.pid
            server.kill9()
            assert not is_alive(before)
            with pytest.raises(redis.ConnectionError):
                client.get("k")
            server.restart()
            assert server.pid != before
            assert client.get("k") == b"v"

    def test_an_empty_restart_forgets(self, server: RedisServer) -> None:
        with redis.Redis.from_url(server.url) as client:
            client.set("k", "v")
            server.restart(empty=True)
            assert client.get("k") is None
            client.set("k", "w")
            server.restart()
            assert client.get("k") == b"w"

    def test_sigstop_freezes_and_sigcont_resumes(self, server: RedisServer) -> None:
        with redis.Redis.from_url(server.url, socket_timeout=0.1, retry=None) as client:
            client.ping()
            server.sigstop()
            with pytest.raises(redis.TimeoutError):
                client.ping()
            server.sigcont()
            assert wait_for(client.ping)

    def test_debug_is_allowed(self, server: RedisServer) -> None:
        with redis.Redis.from_url(server.url) as client:
            assert client.execute_command("DEBUG", "SLEEP", "0")


class TestCluster:
    @pytest.mark.parametrize("binary", share_of(oldest_and_newest(), 2), ids=lambda binary: binary.name)
    def test_every_slot_takes_keys(self, binary: ServerBinary) -> None:
        with RedisCluster3.start(binary) as cluster:
            assert cluster.url == cluster.urls[0]
            written = {f"k{number}" for number in range(600)}
            with redis.RedisCluster.from_url(cluster.url) as client:
                slots = {client.keyslot(key) for key in written}
                assert {slot * 30 // SLOTS for slot in slots} == set(range(30))
                for key in written:
                    client.set(key, "v")
            found = [take_leftovers(url) for url in cluster.urls]
            assert all(len(keys) > 100 for keys in found)
            assert {key for keys in found for key in keys} == written
            assert [take_leftovers(url) for url in cluster.urls] == [[], [], []]

    def test_the_shared_one(self, cluster_url: str, shared_servers: SharedServers) -> None:
        assert set(shared_servers.cluster().urls) == shared_servers.used
        with redis.RedisCluster.from_url(cluster_url) as client:
            client.set("k", "v")
            assert client.delete("k") == 1


class TestLeaks:
    @pytest.mark.one_server
    def test_leftovers_are_told_and_removed(self, redis_url: str, shared_servers: SharedServers) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.set("hg:{t/a}", "v")
            client.set(b"\xff", "v", ex=3600)
        assert shared_servers.take_leftovers() == {redis_url: ["\\xff", "hg:{t/a}"]}
        assert take_leftovers(redis_url) == []
        assert shared_servers.take_leftovers() == {}, "a server that no test used is not looked at"

    @pytest.mark.one_server
    def test_a_namespace_is_deleted_whole_and_alone(self, redis_url: str, namespace: str) -> None:
        keep = [f"hg:{{{namespace}2/a}}", "other"]
        with redis.Redis.from_url(redis_url) as client:
            for key in [
                f"hg:{{{namespace}/a}}",
                f"hg:{{{namespace}/a}}:ledger",
                f"hg:{{{namespace}}}:p",
                *keep,
            ]:
                client.set(key, "v")
            delete_namespace(redis_url, namespace)
        assert take_leftovers(redis_url) == sorted(keep)

    def test_cleanup_namespace_comes_before_the_check(self, redis_url: str, cleanup_namespace: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.set(f"hg:{{{cleanup_namespace}/a}}", "v")

    def test_the_message_lists_the_keys(self) -> None:
        text = describe({"redis://x": [f"k{number:02}" for number in range(30)]})
        assert "redis://x: 30" in text
        assert "k00" in text
        assert "k25" not in text

    def test_a_test_that_leaves_a_key_fails(self, pytester: pytest.Pytester) -> None:
        pytester.makeconftest("from tests.conftest import *")
        pytester.makepyfile(
            """
            import pytest, redis

            @pytest.mark.one_server
            @pytest.mark.parametrize("leave", [True, False], ids=["leaves", "cleans"])
            def test_it(redis_url, leave):
                with redis.Redis.from_url(redis_url) as client:
                    client.set("left-behind", "v")
                    if not leave:
                        client.delete("left-behind")
            """
        )
        result = pytester.runpytest(
            "-p", "no:randomly", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"
        )
        result.assert_outcomes(passed=2, errors=1)
        result.stdout.fnmatch_lines(["*ERROR at teardown of test_it*leaves*", "  left-behind"])


def test_servers_are_found_once_each_oldest_first() -> None:
    servers = available_servers()
    assert len({server.name for server in servers}) == len(servers) > 0
    assert [server.version for server in servers] == sorted(server.version for server in servers)
    for server in servers:
        assert server.path.is_file()
        assert server.name.endswith(".".join(str(part) for part in server.version))
    assert newest_server() is servers[-1]


def test_a_ledger_that_breaks_a_promise_is_told_as_it_is_deleted(redis_url: str, namespace: str) -> None:
    """Mutant: `delete_namespace` does not show what it deletes."""
    key = Address.of(namespace, "orders").shared[-1]
    with redis.Redis.from_url(redis_url) as client, audited() as said:
        client.xadd(key, {"e": "1,7,apply,-,0,0,0,limits:10:inf;binds:yes;above:refuse:-,0,0,0,0,7"}, "1-0")
        client.xadd(key, {"e": "1,8,acquire,s,11,1,0,open:s;grant:s:11:1,0,0,11,1,7"}, "2-0")
        delete_namespace(redis_url, namespace)
    (found,) = said
    assert "P1" in found
    assert "2 acquire s" in found
