"""`headgate doctor` as a shell sees it, on real servers: what it finds, and what it never prints."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

import headgate
from headgate.core.policy import Policy, Rule
from headgate.redis.keys import policy_key
from headgate_coordinator.security.acl import ROLES, acl_line
from tests.demo.command import assert_one_line, run
from tests.faults.deployments import ask, watched
from tests.support.servers import RedisServer, ServerBinary, oldest_and_newest
from tests.support.waiting import wait_for

PASSWORD = "s3cret"
ADVISED = {"maxmemory": "256mb", "tcp-keepalive": "60"}


def doctor(*arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Return the exit code, and check -> (status, what was found)."""
    done = run("doctor", "--json", *arguments)
    assert PASSWORD not in done.stdout + done.stderr
    assert done.stderr == ""
    answer: Any = json.loads(done.stdout)
    found: dict[str, list[tuple[str, str]]] = {}
    for one in answer["checks"]:
        found.setdefault(one["check"], []).append((one["status"], one["found"]))
    return done.returncode, found


@pytest.fixture(
    scope="module",
    params=oldest_and_newest(),
    ids=lambda binary: binary.name,
)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server with a user for each role, and others with fewer rights."""
    binary: ServerBinary = request.param
    file: Path = tmp_path_factory.mktemp("acl") / "users.acl"
    users = [
        f"user root on >{PASSWORD} ~* &* +@all",
        f"user nothing on >{PASSWORD} resetchannels -@all",
        f"user part on >{PASSWORD} ~hg:{{shop/* &* +@all -hset -acl",
        *(acl_line(role, "shop", password=PASSWORD) for role in ROLES),
    ]
    file.write_text("\n".join(users) + "\n")
    with RedisServer.start(binary, port=0, config={"aclfile": str(file), **ADVISED}) as server:
        yield server


def as_user(server: RedisServer, name: str, password: str = PASSWORD) -> tuple[str, ...]:
    return "--redis", server.url.replace("redis://", f"redis://{name}:{password}@"), "--namespace", "shop"


def test_a_server_that_is_set_up_as_advised_is_well(guarded: RedisServer) -> None:
    code, found = doctor(*as_user(guarded, "root"), "--durability", "fsync")
    assert {check for check, all_of in found.items() if any(status != "ok" for status, _ in all_of)} <= {"version"}
    assert found["permissions"] == [("ok", "user root may be: node, operator, metrics, sdk")]
    assert code == (found["version"][0][0] == "warning")  # of a series that has fixes which it lacks


def test_users_of_roles_are_recognized(guarded: RedisServer) -> None:
    may = {"node": set(ROLES), "operator": {"operator", "metrics"}, "metrics": {"metrics"}, "sdk": {"sdk", "metrics"}}
    for role in ROLES:
        code, found = doctor(*as_user(guarded, f"hg-shop-{role}"))
        assert code == 1  # what they may not see
        assert "CONFIG" in str(found["not seen"]).upper()
        ((status, text),) = found["permissions"]
        assert status == "ok"
        assert set(text.partition(" may be: ")[2].split(", ")) == may[role]


def test_a_default_user_who_may_nothing_is_a_problem(guarded: RedisServer) -> None:
    """It need not log in: Redis 7 loads what scripts wrote as that user. Mutant: the check looks whether it is off."""
    expected = "problem" if guarded.binary.version >= (7,) else None
    try:
        for rules, status in (
            (("reset", "off"), expected),
            (("reset", "off", "~other:*", "&*", "+@all"), expected),
            (("reset", "off", "~*", "&*", "+@all"), expected and "ok"),
        ):
            with redis.Redis.from_url(guarded.url, username="root", password=PASSWORD) as client:
                client.execute_command("ACL", "SETUSER", "default", *rules)
            found = doctor(*as_user(guarded, "root"))[1]
            assert [said for said, _ in found.get("users", [])] == ([status] if status else [])
    finally:
        with redis.Redis.from_url(guarded.url, username="root", password=PASSWORD) as client:
            client.execute_command("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")


def test_an_administrator_can_ask_for_others(guarded: RedisServer) -> None:
    asked = (*as_user(guarded, "root"), "--user", "hg-shop-sdk")
    code, found = doctor(*asked)
    if guarded.binary.version < (7,):
        assert code == 1
        assert "permissions" not in found
    else:
        assert found["permissions"] == [("ok", "user hg-shop-sdk may be: metrics, sdk")]
        code, found = doctor(*asked, "--role", "node")
        assert (code, found["permissions"][0][0]) == (2, "problem")


def test_a_user_who_may_more_than_its_role_is_told(guarded: RedisServer) -> None:
    """Mutants: users of roles are warned of; whoever asks for no role is; what another may is not asked."""
    wide = guarded.binary.version >= (7,)
    code, found = doctor(*as_user(guarded, "root"), "--role", "sdk", "--durability", "fsync")
    assert [status for status, _ in found["permissions"]] == ["ok", "warning"][: 1 + wide]
    if wide:
        assert "FLUSHALL, CONFIG SET, ACL SETUSER, SHUTDOWN, keys of others" in found["permissions"][1][1]
        assert code == 1
    narrow = doctor(*as_user(guarded, "hg-shop-sdk"), "--role", "sdk")[1]
    assert [status for status, _ in narrow["permissions"]] == ["ok"]
    if wide:
        others = doctor(*as_user(guarded, "root"), "--user", "root", "--role", "node")[1]
        assert [status for status, _ in others["permissions"]] == ["ok", "warning"]


def test_users_who_may_little_are_told_what_they_lack(guarded: RedisServer) -> None:
    code, found = doctor(*as_user(guarded, "nothing"))
    assert code == 2
    assert found["version"][0][0] == found["permissions"][0][0] == "problem"
    code, found = doctor(*as_user(guarded, "part"), "--role", "node")
    assert code == 2
    ((status, text),) = found["permissions"]
    assert status == "problem"
    assert "lacks hset, keys hg:{shop}:*" in text


def test_a_user_of_another_namespace_is_told_which(guarded: RedisServer) -> None:
    """Mutant: it is told of the commands of whatever role lacks fewest, as none of them may touch such keys."""
    code, found = doctor(*as_user(guarded, "hg-shop-sdk")[:-1], "other")
    expected = "user hg-shop-sdk has no right to the keys of namespace other"
    assert (code, found["permissions"]) == (2, [("problem", expected)])


def test_a_wrong_password_is_a_problem_and_not_repeated(guarded: RedisServer) -> None:
    code, found = doctor(*as_user(guarded, "root", "wr0ng"))
    assert (code, [status for status, _ in found["connection"]]) == (2, ["problem"])
    assert "wr0ng" not in str(found)


def test_a_server_that_is_down_or_hangs_is_a_problem() -> None:
    done = run("doctor", "--redis", f"redis://:{PASSWORD}@127.0.0.1:1")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("redis://:***@127.0.0.1:1/0 (single)\nproblem  connection   cannot be used: ")
    assert "do:  check that it runs" in done.stdout
    assert done.stdout.endswith("1 problem, 0 warnings, 0 ok\n")
    with RedisServer.start(port=0, persist=False) as server:
        server.sigstop()
        try:
            code, found = doctor("--redis", server.url)
        finally:
            server.sigcont()
    assert (code, found["connection"][0][0]) == (2, "problem")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--redis"),
        (("--redis", "http://:s3cret@h"), "redis://"),
        (("--redis", "amqp://me:s3cret@h"), "URL of a node"),
        (("--redis", "redis://h", "--durability", "disk"), "replicas:1"),
        (("--redis", "redis://h", "--role", "boss"), "operator"),
        (("--redis", "redis://h", "--namespace", "No"), "namespace"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = run("doctor", *arguments)
    assert done.returncode == 2
    assert_one_line(done.stderr, words)
    assert PASSWORD not in done.stderr


async def apply(url: str, durability: str) -> None:
    rule = Rule("orders", None, {"durability": durability}, {"durability": "shop.toml:1"})
    async with headgate.connect(url, namespace="shop") as client:
        await client.apply_policy(Policy(1, [rule]))


def test_servers_are_judged_by_what_the_policy_asks_for(guarded: RedisServer) -> None:
    """Mutant: `memory` where no `--durability` is given."""
    asked, key = as_user(guarded, "root"), policy_key("shop")
    asyncio.run(apply(guarded.url, "replicas:1"))
    code, found = doctor(*asked)
    assert (code, found["replicas"]) == (2, [("problem", "0 are up to date, durability = replicas:1 needs 1")])
    assert found["min-replicas"][0][0] == "problem"
    assert doctor(*asked, "--durability", "memory")[1]["replicas"] == [("ok", "none")]
    for unreadable in ("no policy", '{"version": 1}'):
        ask(guarded, "HSET", key, "document", unreadable)
        ((status, text),) = doctor(*asked)[1]["not seen"]
        assert status == "warning"
        assert "the durability that the policy asks for: this is not a compiled policy" in text
    ask(guarded, "FLUSHALL")
    assert doctor(*asked)[1]["replicas"] == [("ok", "none")]


def test_a_cluster_and_its_slots(cluster_url: str) -> None:
    code, found = doctor("--redis", cluster_url, "--durability", "replicas:1")
    assert code == 2
    assert ("ok", "3 of 3 let us in") in found["connection"]
    assert ("warning", "this master has no replica") in found["cluster"]
    assert ("ok", "3 masters, 0 others, all slots are served") in found["cluster"]
    assert found["replicas"] == [("problem", "0 are up to date, durability = replicas:1 needs 1")]
    code, found = doctor("--redis", f"redis+cluster://127.0.0.1:1,{urlsplit(cluster_url).netloc}")
    assert ("ok", "3 of 3 let us in") in found["connection"]  # the first host of the URL is down


def test_sentinels_their_quorum_and_their_switches() -> None:
    with watched(replicas=1, min_replicas_to_write="1", min_replicas_max_lag="3", maxmemory="256mb") as service:

        def found_ok() -> bool:
            code, found = doctor("--redis", service.url, "--durability", "replicas:1")
            asked = found["sentinel"] + found["replicas"] + found["min-replicas"] + found["connection"]
            return code == 1 and all(status == "ok" for status, _ in asked) and "switch-master" in str(asked)

        wait_for(found_ok, timeout=120, description="all is well but for persistence")
        code, found = doctor("--redis", service.url.replace("/main", "/other"))
        assert (code, found["sentinel"]) == (2, [("problem", "does not help: No such master with that name")])
        code, found = doctor("--redis", service.servers[1].url)
        master = service.servers[0].url.removeprefix("redis://").partition("/")[0]
        assert (code, found["role"]) == (2, [("problem", f"a replica of {master}")])
