"""What operators see of deadlocks: the command line and the JSON API; the live page is in `tests/admin`."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

import headgate
from headgate.core.deadlock import Deadlock, Party, Step
from headgate.namespace.deadlocks import FoundDeadlock
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.admin import create_app
from tests.deadlock.figure import fill, program
from tests.demo.command import Running, run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
A, B, X, Y = Party("session", "a~0", "y"), Party("session", "b~0", "x"), Party("queue", "x"), Party("queue", "y")
FOUND = FoundDeadlock(
    Deadlock((Step(X, A), Step(A, Y), Step(Y, B), Step(B, X))), "fail", "a send was made to fail", 2.0
)
STEPS = [
    "queue x waits for session a~0 to consume",
    "session a~0 waits for room in queue y",
    "queue y waits for session b~0 to consume",
    "session b~0 waits for room in queue x",
]


@pytest.fixture
async def found(client: headgate.Client) -> AsyncIterator[None]:
    """A deadlock that a node sees all the time."""
    for name in ("x", "y"):
        await client.apply(name, limit=100)
    notes = NoteStore(client.store.server, client.namespace)

    async def see() -> None:
        while True:
            await notes.write("deadlocks", {FOUND.id: FOUND.note})
            await asyncio.sleep(0.2)

    task = asyncio.create_task(see())
    await wait_until(client.deadlocks)
    yield
    task.cancel()


async def command(client: headgate.Client, *words: str) -> str:
    url = client.redis_url
    done = await asyncio.to_thread(run, *words, "--redis", url, "--namespace", client.namespace)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.whole
async def test_headgate_up_logs_a_deadlock() -> None:
    """Mutant: the log of `headgate up` goes nowhere."""
    running = Running("up", "--json")
    try:
        url = json.loads(await asyncio.to_thread(running.next_line))["url"]
        async with headgate.connect(url) as client:
            await fill(client, deadlock="fail")
            with program(url, "default", "x", "y"), program(url, "default", "y", "x"):

                def logged() -> str:
                    assert running.process.stderr is not None
                    return next(line for line in running.process.stderr if "a deadlock (fail)" in line)

                line = await asyncio.wait_for(asyncio.to_thread(logged), 60)
                assert "WARNING headgate.deadlock: a deadlock (fail): queue " in line
    finally:
        running.process.terminate()
        with running.process:
            running.process.communicate(timeout=80)


async def test_the_command_line_says_when_there_is_none(client: headgate.Client) -> None:
    assert "No node saw a deadlock" in await command(client, "deadlocks")


async def test_the_command_line_shows_each_step(client: headgate.Client, found: None) -> None:
    shown = (await command(client, "deadlocks")).splitlines()
    assert shown[0].startswith(f"deadlock {FOUND.id} lasts 2.0 s (fail): a send was made to fail")
    assert shown[1:] == [f"  {number}. {step}" for number, step in enumerate(STEPS, 1)]
    (told,) = json.loads(await command(client, "deadlocks", "--json"))
    assert (told["id"], told["current"], told["action"], told["text"]) == (FOUND.id, True, "fail", "; ".join(STEPS))
    assert told["steps"][1]["who"] == {"kind": "session", "name": "a~0", "at": "y"}


async def test_explain_and_status_name_it(client: headgate.Client, found: None) -> None:
    assert f"a deadlock: {'; '.join(STEPS)}" in await command(client, "explain", "x")
    status = " ".join((await command(client, "status")).split())
    assert status.count("a deadlock: queue x waits for session a~0 to consume") == 1


async def test_the_api_lists_them(client: headgate.Client, found: None) -> None:
    transport = httpx.ASGITransport(create_app(client, None, token=None, hosts=("node.example",)))
    async with httpx.AsyncClient(transport=transport, base_url="http://node.example", verify=False) as http:
        (told,) = (await http.get("/api/v1/deadlocks")).json()["deadlocks"]
        assert (await http.get("/api/v1/overview")).json()["deadlocks"][0]["id"] == FOUND.id
        explained = (await http.get("/api/v1/destinations/x/explain")).json()
    assert (told["id"], told["current"], told["destinations"]) == (FOUND.id, True, ["x", "y"])
    assert [step["text"] for step in told["steps"]] == STEPS
    assert [(step["kind"], step["name"]) for step in told["steps"]][:2] == [("queue", "x"), ("session", "a~0")]
    assert explained["explanation"]["deadlock"]["steps"][0]["who"]["name"] == "x"
