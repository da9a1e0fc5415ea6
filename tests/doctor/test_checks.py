"""Checks of a deployment, without any: facts in, findings out."""

from dataclasses import replace

import pytest

from headgate.core.durability import Durability
from headgate.redis.probing import Reason
from headgate_coordinator.doctor.checks import check
from headgate_coordinator.doctor.deployment import (
    Clock,
    ClusterFacts,
    Deployment,
    SentinelFacts,
    ServerFacts,
    parse_nodes,
)
from headgate_coordinator.doctor.findings import Finding, worst
from headgate_coordinator.doctor.redis_permissions import _WORDS
from headgate_coordinator.security.acl import ROLES, commands_of
from tests.support.extent import each

GOOD = ServerFacts(
    "a:6379",
    info={
        "redis_version": "7.2.11", "role": "master", "aof_enabled": "1", "aof_last_write_status": "ok",
        "rdb_last_bgsave_status": "ok", "maxmemory_policy": "noeviction", "maxmemory": "1000000000",
        "used_memory": "1000000", "total_system_memory": "8000000000", "connected_clients": "3", "maxclients": "10000",
        "number_of_cached_scripts": "40", "slave0": "ip=b,port=6379,state=online,offset=9,lag=0",
    },
    config={
        "appendfsync": "everysec", "save": "", "min-replicas-to-write": "1", "min-replicas-max-lag": "3",
        "repl-backlog-size": "67108864", "repl-backlog-ttl": "3600",
        "timeout": "0", "tcp-keepalive": "60", "stop-writes-on-bgsave-error": "yes",
        "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    },
    clock=Clock(0.01, 0.001), answer_seconds=0.001, user="shop", missing={"node": ()},
)  # fmt: skip


def findings(*servers: ServerFacts, durability: str = "memory", **of: object) -> list[Finding]:
    deployment = replace(Deployment("redis://a", "single", servers), **of)  # type: ignore[arg-type]
    return check(deployment, Durability.parse(durability))


def bad(found: list[Finding]) -> list[tuple[str, str]]:
    for one in found:
        assert one.status == "ok" or (one.why and one.advice), f"{one} says not why, or not what to do"
    return [(one.check, one.status) for one in found if one.status != "ok"]


@pytest.mark.parametrize("durability", ["memory", "fsync", "replicas:1"])
def test_nothing_is_wrong_with_a_server_that_is_set_up_as_advised(durability: str) -> None:
    found = findings(GOOD, durability=durability)
    assert bad(found) == []
    assert {one.check for one in found} >= {
        "connection", "version", "permissions", "persistence", "eviction", "memory", "replicas", "min-replicas",
        "backlog", "clock", "connections", "scripts", "buffers",
    }  # fmt: skip


@each(
    ("change", "durability", "expected"),
    [
        ({"redis_version": "6.0.16"}, "memory", ("version", "problem")),
        ({"redis_version": "7.2.4"}, "memory", ("version", "warning")),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.1", "server_name": "valkey"}, "memory",
         ("version", "warning")),
        ({"dragonfly_version": "df-1.2"}, "memory", ("version", "warning")),
        ({"aof_enabled": "0"}, "memory", ("persistence", "warning")),
        ({"aof_enabled": "0"}, "fsync", ("persistence", "problem")),
        ({"appendfsync": "no"}, "memory", ("persistence", "warning")),
        ({"appendfsync": "no"}, "fsync", ("persistence", "problem")),
        ({"redis_version": "7.0.15"}, "fsync", ("persistence", "problem")),  # it has no WAITAOF
        ({"aof_last_write_status": "err"}, "memory", ("persistence", "problem")),
        ({"rdb_last_bgsave_status": "err"}, "memory", ("persistence", "problem")),
        ({"rdb_last_bgsave_status": "err", "stop-writes-on-bgsave-error": "no"}, "memory", ("persistence", "warning")),
        ({"maxmemory_policy": "allkeys-lru"}, "memory", ("eviction", "problem")),
        ({"maxmemory": "0"}, "memory", ("memory", "warning")),
        ({"used_memory": "900000000"}, "memory", ("memory", "warning")),
        ({"used_memory": "990000000"}, "memory", ("memory", "problem")),
        ({"maxmemory": "9000000000"}, "memory", ("memory", "warning")),
        ({}, "replicas:2", ("replicas", "problem")),
        ({"slave1": "ip=c,port=1,state=online,lag=1"}, "replicas:1", ("replicas", "warning")),
        ({"slave1": "ip=c,port=1,state=wait_bgsave,lag=0"}, "memory", ("replicas", "warning")),
        ({"slave1": "ip=c,port=1,state=online,lag=30"}, "memory", ("replicas", "warning")),
        ({"min-replicas-to-write": "0"}, "memory", ("min-replicas", "warning")),
        ({"min-replicas-to-write": "0"}, "replicas:1", ("min-replicas", "problem")),
        ({"min-replicas-to-write": "2"}, "memory", ("min-replicas", "problem")),
        ({"min-replicas-max-lag": "0"}, "memory", ("min-replicas", "warning")),
        ({"min-replicas-max-lag": "600"}, "memory", ("min-replicas", "warning")),
        ({"repl-backlog-size": "1048576"}, "memory", ("backlog", "warning")),
        ({"timeout": "60"}, "memory", ("connections", "warning")),
        ({"tcp-keepalive": "0"}, "memory", ("connections", "warning")),
        ({"connected_clients": "9990"}, "memory", ("connections", "warning")),
        ({"number_of_cached_scripts": "90000"}, "memory", ("scripts", "warning")),
        ({"client-output-buffer-limit": "pubsub 1024 0 0"}, "memory", ("buffers", "warning")),
    ],
)  # fmt: skip
def test_each_setting_that_is_wrong_is_found(
    change: dict[str, str], durability: str, expected: tuple[str, str]
) -> None:
    config = {name: change.get(name, value) for name, value in GOOD.config.items()}
    info = {**GOOD.info, **{name: value for name, value in change.items() if name not in config}}
    found = findings(replace(GOOD, info=info, config=config), durability=durability)
    assert expected in bad(found)


def test_a_server_that_would_forget_that_it_was_promoted_is_found() -> None:
    alone = {name: value for name, value in GOOD.info.items() if name != "slave0"} | {"second_repl_offset": "42"}
    settings = {**GOOD.config, "min-replicas-to-write": "0"}
    assert bad(findings(replace(GOOD, info=alone, config=settings))) == [("backlog", "warning")]
    assert bad(findings(replace(GOOD, info=alone | {"second_repl_offset": "-1"}, config=settings))) == []
    assert bad(findings(replace(GOOD, info=alone, config=settings | {"repl-backlog-ttl": "0"}))) == []
    assert bad(findings(replace(GOOD, info={**GOOD.info, "second_repl_offset": "42"}))) == []


def test_a_clock_that_is_off_and_clocks_that_differ_are_found() -> None:
    assert bad(findings(replace(GOOD, clock=Clock(-3600, 0.01)))) == [("clock", "warning")]
    other = replace(GOOD, place="b:6379", clock=Clock(3.0, 0.01))
    assert bad(findings(GOOD, other, kind="sentinel")) == [("clock", "warning")]
    assert bad(findings(replace(GOOD, clock=Clock(30, 40)))) == []  # a slow answer proves nothing


def test_permissions_are_enough_for_a_role_or_what_lacks_is_named() -> None:
    short = {"node": ("hset", "keys hg:{shop}:*"), "metrics": ()}
    assert bad(findings(replace(GOOD, missing=short))) == []
    lacking = findings(replace(GOOD, missing={"node": short["node"]}))
    assert bad(lacking) == [("permissions", "problem")]
    assert "user shop cannot be node: it lacks hset, keys hg:{shop}:*" in str(lacking)


def test_a_user_that_is_called_after_a_role_is_judged_by_it() -> None:
    """Mutant: being fit for another role is enough."""
    short = {"sdk": ("hset",), "metrics": ()}
    lacking = findings(replace(GOOD, user="hg-shop-sdk", missing=short))
    assert bad(lacking) == [("permissions", "problem")]
    assert "user hg-shop-sdk cannot be sdk: it lacks hset" in str(lacking)


def test_a_user_of_another_namespace_is_told_of_that_and_of_no_commands() -> None:
    lacks = ("evalsha", "hset", "keys hg:{other/*", "channel hg")
    lacking = findings(replace(GOOD, user="hg-shop-sdk", missing={"metrics": lacks, "sdk": (*lacks, "publish")}))
    assert bad(lacking) == [("permissions", "problem")]
    assert "user hg-shop-sdk has no right to the keys of namespace other" in str(lacking)
    assert "`headgate acl --role sdk --namespace other`" in str(lacking)
    nothing = findings(replace(GOOD, user="nobody", missing={"sdk": ("ping", *lacks)}))
    assert "user nobody cannot be sdk: it lacks ping, evalsha" in str(nothing)


def test_what_is_forbidden_to_ask_is_a_warning_and_no_failure() -> None:
    blind = replace(GOOD, info={}, config={}, clock=None, missing=None, unanswered={
        "INFO": "forbidden", "CONFIG GET": "forbidden", "TIME": "forbidden", "permissions": "forbidden",
    })  # fmt: skip
    assert bad(findings(blind)) == [("version", "problem"), *[("not seen", "warning")] * 3]
    assert bad(findings(replace(GOOD, config={}, unanswered={"CONFIG GET": "forbidden"}))) == [("not seen", "warning")]


def test_what_cannot_be_reached_is_a_problem() -> None:
    down = ServerFacts("b:1", "Connection refused")
    assert bad(findings(down)) == [("connection", "problem")]
    assert bad(findings(GOOD, down, kind="sentinel")) == [("connection", "warning")]  # a replica
    assert worst(findings()) == "problem"
    assert bad(findings(replace(GOOD, info={**GOOD.info, "role": "slave", "master_link_status": "up"}))) == [
        ("role", "problem")
    ]


@pytest.mark.parametrize(
    ("reason", "encrypted", "remedy"),
    [
        ("certificate", True, "check ?ca_file=PATH"),
        ("file", True, "see that the files of the URL"),
        ("file", False, "check that it runs"),  # its socket is not there
        ("closed", True, "see whether it asks clients for a certificate"),
        ("closed", False, "check that a Redis is there, and whether it wants TLS"),
        (
            "silent",
            True,
            "check that it runs and listens at that address, and that no firewall is in between; and that it speaks",
        ),
    ],
)
def test_what_to_do_is_about_what_kept_us_out(reason: Reason, encrypted: bool, remedy: str) -> None:
    down = ServerFacts("b:1", "Connection refused", reason=reason)
    (found,) = findings(down, encrypted=encrypted)
    assert found.advice.startswith(remedy)


NODES = """\
1 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460
2 10.0.0.2:7000@17000,name master - 0 0 2 connected 5461-10922
3 10.0.0.3:7000@17000 master - 0 0 3 connected 10923-16383
4 10.0.0.4:7000@17000 slave 1 0 0 1 connected
5 10.0.0.5:7000@17000 slave 2 0 0 2 connected
6 10.0.0.6:7000@17000 slave 3 0 0 3 connected
"""


@pytest.mark.parametrize(
    ("before", "after", "state", "expected"),
    [
        ("", "", "ok", []),
        ("5461-10922", "5461-10921", "ok", [("cluster", "problem")]),
        ("", "", "fail", [("cluster", "problem")]),
        ("slave 3", "slave,fail 3", "ok", [("cluster", "warning"), ("cluster", "warning")]),  # and its master is alone
        ("5460", "5460 [99->-2]", "ok", [("cluster", "warning")]),
        ("", "", "", []),
    ],
)
def test_slots_masters_and_replicas_of_a_cluster(
    before: str, after: str, state: str, expected: list[tuple[str, str]]
) -> None:
    cluster = ClusterFacts(parse_nodes(NODES.replace(before, after)), state)
    assert len(cluster.nodes) == 6
    assert bad(findings(GOOD, kind="cluster", cluster=cluster)) == expected


def test_quorum_switches_and_agreement_of_sentinels() -> None:
    one = SentinelFacts(
        "s:1", "", "a:6379", {"num-other-sentinels": "2", "flags": "master", "quorum": "2"}, "", "", ("b:6379",)
    )

    def of(*sentinels: SentinelFacts) -> list[tuple[str, str]]:
        return bad(findings(GOOD, kind="sentinel", sentinels=sentinels))

    assert of(one, replace(one, place="s:2")) == []
    assert of(one, replace(one, quorum="NOQUORUM 1 usable Sentinels")) == [("sentinel", "problem")]
    assert of(one, replace(one, switches="forbidden")) == [("sentinel", "warning")]
    assert of(one, replace(one, master="b:6379")) == [("sentinel", "problem")]
    assert of(one, SentinelFacts("s:2", "Connection refused")) == [("sentinel", "warning")]
    assert of(replace(one, replicas=())) == [("sentinel", "warning")]
    assert of(replace(one, fields={**one.fields, "num-other-sentinels": "0"})) == [("sentinel", "warning")]
    assert of(replace(one, fields={**one.fields, "flags": "s_down,master"})) == [("sentinel", "problem")]


def test_what_is_the_same_of_several_servers_is_said_once() -> None:
    lost = replace(GOOD, info={**GOOD.info, "maxmemory": "0"})
    found = findings(lost, replace(lost, place="b:6379"), kind="sentinel")
    assert [one.places for one in found if one.check == "memory"] == [("a:6379", "b:6379")]


def test_each_command_of_a_role_has_a_form_that_redis_takes() -> None:
    """Those without a row here take one key and one more word."""
    plain = {"hdel", "hexists", "hget", "hmget", "hstrlen", "sadd", "sismember", "srem", "xdel", "zmscore",
             "zrank", "zrem", "zscore"}  # fmt: skip
    assert {command for role in ROLES for command in commands_of(role, cluster=True)} <= plain | _WORDS.keys()
