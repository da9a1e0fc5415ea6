"""Every argument of every script has a type in its header; what is not of it changes nothing and costs nothing."""

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from headgate.errors import CoordinatorUnavailable, InvalidValue
from headgate.redis.keys import (
    Address,
    PoolAddress,
    index_keys,
    made_key,
    node_keys,
    notes_key,
    owned_keys,
    policy_key,
    users_key,
)
from headgate.redis.scripts import Script, ScriptError, parse, script, script_names
from headgate.redis.server import Server
from headgate.redis.store import Store
from headgate.redis.text.arguments import Type, UnknownTypeError
from headgate.redis.url import parse_url
from tests.lua.contracts.test_contract import KEYS
from tests.support.arguments import goods, plain
from tests.support.extent import share_of

SCRIPTS: Final = script_names()
BAD: Final[tuple[Any, ...]] = (
    "", "-1", "0", "-0", "+1", "1.5", "1e9", "0x10", " 5", "5 ", "007", "65", "nan", "inf", "-inf", "1e16",
    str(2**52 + 1), str(2**53 - 1), str(2**53), str(2**63), str(10**30), "9" * 400,
    "a b", "a\nb", "a\rb", "a\0b", "a\x7fb", "a=1 b=2", "x" * 100_000,
    b"\xff\xfe", "{x}", "*", "leave ", "granted=9", "0\n1", "keep\n", "1-1 2-2", "../x y",
)  # fmt: skip
BARE: Final = 50
"""Calls without any argument, whose mean is what the others are compared with."""
FEW: Final = 10
"""As much as so many of these each of the others may take."""
MANY: Final = 10_000
"""And as much as so many all of them together: some arguments have 100 kB."""


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[Server]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield server
    await server.close()


def keys_of(op: Script, namespace: str) -> tuple[bytes, ...]:
    about, _ = KEYS.get(op.name, KEYS["*"])
    if about.startswith("the destination's"):
        return Address.of(namespace, "orders").limiter_keys("ann~1")[: 26 if "limiter" in about else 22]
    return {
        "the pool's, as lib/pool_keys": PoolAddress.of(namespace, "memory").keys,
        "the pool's and a site's, as lib/site_key": (
            *PoolAddress.of(namespace, "memory").keys,
            PoolAddress.of(namespace, "memory").site_key("berlin"),
        ),
        "the namespace's, as lib/index": index_keys(namespace),
        "the namespace's registry of nodes, as lib/node_keys": node_keys(namespace),
        "the namespace's policy": (policy_key(namespace).encode(),),
        "the namespace's users": (users_key(namespace).encode(),),
        "those of one user of the namespace": (made_key(namespace, "ann"),),
        "notes of the namespace, of one sort": (notes_key(namespace, "waits"),),
        "the namespace's, as lib/owned": owned_keys(namespace),
    }[about]


def wrong_calls(op: Script) -> Iterator[tuple[str, list[Any]]]:
    """Yield calls with one argument that is not of its type."""
    argv = plain(op)
    types = [*op.declared.fixed]
    if op.declared.rest and not op.declared.fields:
        types += [(f"{op.arguments[-1]} {of.text}", of) for of in op.declared.rest.items]
    for at, (name, of) in enumerate(types):
        for bad in BAD:
            if not of.accepts(bad):
                yield f"{name} {str(bad)[:20]!r}", [*argv[:at], bad, *argv[at + 1 :]]
    for field, of in op.declared.fields.items():
        for bad in BAD:
            if bad != "" and not of.accepts(bad):
                yield f"{field} {str(bad)[:20]!r}", [*argv[:-2], field, bad]
    if op.declared.fields:
        yield "a field that there is not", [*argv[:-2], "run_id", "x"]
    yield "one too few", argv[: len(op.declared.fixed) - 1]
    if op.declared.rest:
        width = len(op.declared.rest.items)
        yield "too many", [*argv[: len(argv) - width], *argv[len(argv) - width :] * (op.declared.rest.several + 1)]
        if width > 1:
            yield "part of the last", argv[:-1]
    else:
        yield "one too many", [*argv, "x"]


async def refused(server: Server, op: Script, keys: tuple[bytes, ...], argv: list[Any]) -> bool:
    """Call, and return whether it was refused for what it was called with."""
    try:
        await server.call(op, keys, argv)
    except InvalidValue:
        return True
    return False


async def processor(server: Server) -> float:
    """Return the seconds of processor time that the server has taken."""
    said = (await server.command(b"", "INFO", "cpu")).decode()
    return sum(map(float, re.findall(r"used_cpu_(?:sys|user):([0-9.]+)", said)))


async def everything(server: Server, namespace: str) -> dict[str, Any]:
    keys = await server.scan(f"hg:{{{namespace}*")
    return {key: await server.command(key.encode(), "DUMP", key) for key in keys}


async def settle_in(server: Server, namespace: str) -> None:
    """Make a destination with a message, a consumer and a producer, a pool, and the namespace's own."""
    store, address = Store(server), Address.of(namespace, "orders")
    await store.apply(address, {"kind": "queue", "limit_bytes": "1000"}, mode="ensure", ttl_ms=1000)
    attach = {"number": 1, "subscription": "queue", "durable": True, "window": "1/1", "ttl_ms": 3_600_000}
    await store.attach(address, "ann~1", **attach)  # type: ignore[arg-type]
    for name in ("node", "wildcard", "topic", "lease", "note", "users", "made", "policy", "pool_set"):
        await server.call(script(name), keys_of(script(name), namespace), plain(script(name)))


@pytest.mark.parametrize("name", share_of(SCRIPTS, 2))
async def test_what_is_not_of_its_type_is_refused_and_changes_nothing(
    server: Server, cleanup_namespace: str, name: str
) -> None:
    """Mutants: any of the checks that `Arguments.in_lua` writes is left out; one goes through what it is given.

    What a call costs is compared with one that has no argument at all, in processor time of the server: others take as
    much of the clock as they like.
    """
    op, keys = script(name), keys_of(script(name), cleanup_namespace)
    await settle_in(server, cleanup_namespace)
    before = await everything(server, cleanup_namespace)
    assert before
    done, calls = [], list(wrong_calls(op))
    assert await refused(server, op, keys, [])
    begins = await processor(server)
    for _ in range(BARE):
        await refused(server, op, keys, [])
    bare = max((await processor(server) - begins) / BARE, 1e-5)  # some systems count in ticks
    begins = await processor(server)
    for what, argv in calls:
        try:
            done += [] if await refused(server, op, keys, argv) else [what]
        except CoordinatorUnavailable as error:
            done.append(f"{what}: {error}")
    spent = await processor(server) - begins
    assert not done
    assert await everything(server, cleanup_namespace) == before
    assert spent < (FEW * len(calls) + MANY) * bare, f"{len(calls)} calls"


def by_its_run(op: Script, call: list[Any]) -> list[Any]:
    """Return a call of a script through the run that serves, in place of one that the state does not know."""
    return [None, *call[1:]] if op.arguments[:1] == ("run_id",) else call


@pytest.mark.parametrize("name", SCRIPTS)
async def test_what_is_of_its_type_is_not_refused(server: Server, cleanup_namespace: str, name: str) -> None:
    """Breaks when Lua and Python read a type otherwise; an error of any script is one too."""
    op, keys = script(name), keys_of(script(name), cleanup_namespace)
    await settle_in(server, cleanup_namespace)
    argv = plain(op)
    for at, (_, of) in enumerate(op.declared.fixed):
        for value in goods(of):
            call = [*argv[:at], value, *argv[at + 1 :]]
            if name == "settle":
                outcomes = ("accepted", "released", "rejected", "failed")
                told = sum(int(call[op.arguments.index(outcome)]) for outcome in outcomes)
                call = [*call[: len(op.declared.fixed)], *["1-10"] * told]
            assert op.declared.wrong(call) is None
            await server.call(op, keys, by_its_run(op, call))
    for field, of in op.declared.fields.items():
        for value in (*goods(of), ""):
            if field != "kind":
                call = by_its_run(op, [*argv[:-2], field, value])
                assert (await server.call(op, keys, call))[0] in (b"OK", b"OLD")


def test_every_argument_has_a_type() -> None:
    for op in map(script, SCRIPTS):
        assert len(op.declared.types) == len(op.arguments)
        for (_, of), value in itertools.product(op.declared.fixed, BAD):
            assert of.accepts(value) in (True, False)


def test_a_script_without_types_is_none() -> None:
    for header in ("ARGV[1] one", "ARGV[1] one  first", "ARGV[1..] some  id", "ARGV[1] one  up to 3 of id"):
        with pytest.raises(ScriptError, match=r"x\.lua"):
            parse("x", f"--[[\n  {header}\n]]\n", checked=True)
    with pytest.raises(UnknownTypeError, match="number"):
        Type.of("number")


@pytest.mark.parametrize(
    ("text", "accepted", "refused"),
    [
        ("1 to 64", [1, "1", b"64"], [0, "0", 65, "065", "", "1 ", True, None, 1.0]),
        ("0 to 2^40 or 'same'", [0, 2**40, "same"], [2**40 + 1, -1, "sane", "same "]),
        ("'a', 'b' or 'c'", ["a", b"c"], ["d", "", "ab", 1]),
        ("text to 5", ["", "a b", "ä"], ["abcdef", "a\n", "a\x7f"]),
        ("bytes to 3", [b"\x00\xff", ""], [b"1234", 1]),
        ("'0' or message", ["0", "1-2"], ["1", "1-", "-1"]),
        ("rate", ["1e-09", "0.0001", "100.0"], ["0", "1e-10", "1e16", "nan", "-1", "1e", "e5"]),
        ("total", [0, 2**53 - 1], [2**53, -1, "1e5"]),
    ],
)
def test_a_type_says_what_may_be(text: str, accepted: list[Any], refused: list[Any]) -> None:
    of = Type.of(text)
    assert [value for value in accepted if not of.accepts(value)] == []
    assert [value for value in refused if of.accepts(value)] == []


def test_what_is_wrong_is_named() -> None:
    op = script("attach")
    good_ones = plain(op)
    assert op.declared.wrong(good_ones) is None
    assert op.declared.wrong([*good_ones[:2], 65, *good_ones[3:]]) == "attach: number is 65; use 1 to 64"
    assert op.declared.wrong(good_ones[:3]) == "attach takes 8 arguments, not 3"
    apply = script("apply")
    said = apply.declared.wrong(["r", "change", 0, "ledger", "some"])
    assert said == "apply: field, value 2 is 'some'; use 'all' or 'off'"
