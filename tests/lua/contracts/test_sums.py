"""Whatever scripts are given that is of its type, what they keep stays readable and exact, in any order."""

import asyncio
import itertools
import re
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import CoordinatorUnavailable
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate.redis.server import Server
from headgate.redis.store import Store
from headgate.redis.url import parse_url
from tests.support.arguments import goods, plain
from tests.support.extent import examples

CALLS: Final = (
    "acquire", "publish", "take", "drop", "slice", "attach", "settle", "apply", "reap", "resolve", "link_open",
    "link_commit", "link_read", "hold",
)  # fmt: skip
_WHOLE: Final = re.compile(r"-?\d+")
_RECORD: Final = re.compile(r"=(-?\d+(?:\.\d+)?(?:e\+?\d+)?)(?= |$)")
_LATE: Final = [
    ("attach", ["", "bob~1", 1, 0, "orders", 0, "10/unlimited/0.5", ""]),
    *[("link_read", ["", "bob~1", 0, 0, 0, 0, 0, 0, "works", "-"])] * 3,
]
"""A link of a session's name reads while that session's lease is over: whom a call is for is not ended by it."""
_number = itertools.count()


@st.composite
def a_call(draw: Any) -> tuple[str, list[Any]]:
    name = draw(st.sampled_from(CALLS))
    op = script(name)
    argv = plain(op)
    for at, (argument, of) in enumerate(op.declared.fixed):
        if argument in ("run_id", "consumer"):
            continue
        if argument in ("session", "link"):
            argv[at] = draw(st.sampled_from(["ann~1", "bob~1"]))
            continue
        values = goods(of)
        if of.is_number and isinstance(values[-1], int):
            values += [1, 10, 1000, values[-1] // 2]
        argv[at] = draw(st.sampled_from([value for value in values if of.accepts(value)]))
    if name == "settle":
        argv = argv[: len(op.declared.fixed)]
        argv[-4:] = [0, 0, 0, 0]
    if name == "publish":
        argv[op.arguments.index("beyond")], argv[op.arguments.index("segment")] = "refuse", "-"
    if name == "apply":
        field = draw(st.sampled_from(sorted(set(op.declared.fields) - {"kind", "pools", "store", "when_full"})))
        argv = ["run", "change", 1000, field, draw(st.sampled_from(goods(op.declared.fields[field])))]
    return name, argv


async def _run(url: str, kind: str, calls: list[tuple[str, list[Any]]]) -> None:
    server = Server(parse_url(url))
    await server.open()
    address = Address.of("sums", f"d{next(_number)}")
    try:
        rates = {"rate": "0.5", "burst": "10"} if kind == "bucket" else {}
        await Store(server).apply(address, {"kind": kind, **rates}, mode="ensure", ttl_ms=1000)
        for name, said in calls:
            op = script(name)
            argv = [None, *said[1:]]
            session = str(dict(zip(op.arguments, argv, strict=False)).get("session", "-"))
            try:
                await server.call(op, address.keys(session), argv)
            except CoordinatorUnavailable as error:
                pytest.fail(f"{name} {argv}: {error}")
            await _check(server, address, (name, argv))
        assert (await Store(server).recount(address)).equal
    finally:
        keys = await server.scan("hg:{sums/*")
        for key in keys:
            await server.command(key.encode(), "UNLINK", key)
        await server.close()


async def _check(server: Server, address: Address, after: Any) -> None:
    fields = await server.command(address.shared[0], "HGETALL", address.key)
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        if _WHOLE.fullmatch(value.decode("utf-8", "replace")):
            assert 0 <= int(value) < 2**53, (name, value, after)
    for part in (1, 6):
        flat = await server.command(address.shared[part], "HGETALL", address.shared[part])
        for record in flat[1::2]:
            for number in _RECORD.findall(record.decode()):
                assert 0 <= float(number) < 2**53, (record, after)
                assert number.isdigit(), (record, after)


@pytest.mark.parametrize("kind", ["queue", "topic", "gate", "bucket"])
@pytest.mark.one_server
def test_sums_stay_exact_and_records_readable(redis_url: str, kind: str) -> None:
    """Breaks when two numbers that are accepted add up to one that is not, or a record cannot be read any more."""

    @settings(max_examples=examples(120), deadline=None)
    @example(_LATE)
    @given(st.lists(a_call(), min_size=1, max_size=14))
    def run(calls: list[tuple[str, list[Any]]]) -> None:
        asyncio.run(_run(redis_url, kind, calls))

    run()
