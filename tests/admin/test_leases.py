"""The examples of limits over HTTP, in Node and in the shell, before real nodes of which one is killed."""

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from tests.demo.command import environment
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class NodeWithPage:
    """`headgate node` with admin HTTP, to be killed."""

    def __init__(self, redis_url: str, namespace: str) -> None:
        with Path(os.devnull).open("w") as nowhere:
            self.process = Forked(
                *("headgate_coordinator", "node", "--json", "--port=0", "--admin-port=0"),
                *(f"--redis={redis_url}", f"--namespace={namespace}"),
                environment=environment(), stdout=PIPE, stderr=nowhere,
            )  # fmt: skip
        assert self.process.stdout
        self.admin = str(json.loads(self.process.stdout.readline())["admin"])

    def kill9(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
async def llm(client: headgate.Client) -> headgate.Client:
    limits = {"slots": {"at_once": 1}, "tokens": {"rate": "100/s", "burst": 1000}}
    await client.apply("llm", kind="limiter", limits=limits)
    return client


@contextlib.asynccontextmanager
async def program(*words: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | settings,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def holds(client: headgate.Client) -> int:
    levels = await LimiterStore(client.store.server).levels(Address.of(client.namespace, "llm"), most=100)
    return len(levels.holds) if levels else 0


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
async def test_a_program_in_node_keeps_its_hold_though_its_node_is_killed(llm: headgate.Client, url: str) -> None:
    """A mutant whose holds end with their node's session fails: another program would get in beside it."""
    one, two = [await asyncio.to_thread(NodeWithPage, url, llm.namespace) for _ in range(2)]
    script = str(EXAMPLES / "lease.mjs")
    both = f"{one.admin},{two.admin}"
    try:
        async with program("node", script, "llm", "acme", HEADGATE=both, SECONDS="5", TTL="2") as first:
            assert first.stdout
            assert [(await first.stdout.readline()).strip() for _ in range(2)] == [b"waiting", b"held"]
            one.kill9()
            async with program("node", script, "llm", "acme", HEADGATE=two.admin, SECONDS="0") as next_:
                assert next_.stdout
                assert (await next_.stdout.readline()).strip() == b"waiting"
                done = asyncio.create_task(first.stdout.readline())
                held = asyncio.create_task(next_.stdout.readline())
                await asyncio.wait((done, held), return_when=asyncio.FIRST_COMPLETED)
                assert done.done(), "the hold lived on: it was renewed at the other node, for longer than its lease"
                assert (await done, await held) == (b"done\n", b"held\n")
        await wait_until(lambda: _is(llm, 0), timeout=60, description="both have released")
    finally:
        one.kill9()
        two.kill9()


async def _is(client: headgate.Client, count: int) -> bool:
    return await holds(client) == count


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on PATH")
async def test_a_refusal_ends_the_shell_at_once() -> None:
    """A mutant with curl's --retry for admissions fails: it waits out what the refusal says."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with program(
            str(EXAMPLES / "lease.sh"), "llm", "acme", "true", HEADGATE=f"http://{host}:{port}"
        ) as asked:
            async with asyncio.timeout(60):
                assert await asked.wait() == 75


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not on PATH")
async def test_a_command_runs_in_the_shell_while_a_slot_is_held(llm: headgate.Client, url: str) -> None:
    node = await asyncio.to_thread(NodeWithPage, url, llm.namespace)
    script = str(EXAMPLES / "lease.sh")
    try:
        command = ("sh", "-c", "echo in; read line; exit 7")
        async with program(script, "llm", "acme", *command, HEADGATE=node.admin) as held:
            assert held.stdout
            assert held.stdin
            assert await held.stdout.readline() == b"in\n"
            assert await holds(llm) == 1
            held.stdin.write(b"on\n")
            assert await held.wait() == 7
        assert await holds(llm) == 0
        async with program(script, "none", "acme", "true", HEADGATE=node.admin) as refused:
            out, err = await refused.communicate()
            assert (refused.returncode, b"none" in err) == (75, True), (out, err)
        async with program(script, "llm", "acme", "sh", "-c", "echo in; exec sleep 60", HEADGATE=node.admin) as stopped:
            assert stopped.stdout
            assert await stopped.stdout.readline() == b"in\n"
            stopped.terminate()
            assert await stopped.wait() == 143
        assert await holds(llm) == 0
    finally:
        node.kill9()
