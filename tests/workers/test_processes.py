"""Workers as processes: one address, sums over all, crashes, restarts in turn, and an end that takes all along."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx
import pytest

import headgate
from headgate.amqp.peer import Disconnected
from headgate.policy import loads
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.store import UserStore
from headgate_coordinator.workers.supervisor import Supervisor
from headgate_coordinator.workers.worker import WorkerAssignment
from tests.amqp.client import Peer
from tests.support.extent import each
from tests.support.forked import PIPE, Forked
from tests.support.waiting import is_alive, wait_for, wait_until
from tests.workers.conftest import Crew, StartCrew, children, run_node

pytestmark = pytest.mark.one_server


async def spread(stack: AsyncExitStack, crew: Crew, count: int = 12) -> list[Peer]:
    """Open connections, which fall to the workers as the system has it."""
    peers = []
    for number in range(count):
        peers.append(await Peer.connect(crew.port, f"client-{number}"))
        stack.push_async_callback(peers[-1].close)
    return peers


async def test_clients_are_spread_the_sums_are_of_all_and_holds_everybodys(crew: Crew) -> None:
    """Mutant: each worker tells of itself alone."""
    assert len(crew.workers) == 2
    async with AsyncExitStack() as stack:
        for peer in await spread(stack, crew):
            link = await peer.sender("orders")
            assert await peer.send(link, "one") == ("accepted", "")

        async def in_sum() -> bool:
            figures = await asyncio.to_thread(crew.figures)
            return figures.get("headgate_node_connections") == 12 and figures.get("headgate_node_links in") == 12

        await wait_until(in_sum)
        figures = await asyncio.to_thread(crew.figures)
        assert figures["headgate_node_messages_total in"] == 12
        assert (figures["headgate_node_workers"], figures["headgate_node_answering_workers"]) == (2, 2)
        told = [name for name in figures if name.startswith("headgate_node_info")]
        assert len({name.split()[1] for name in told}) == 1, "one address"
        assert sorted(re.sub("~.*", "", name.split()[2]) for name in told) == ["crew-w1", "crew-w2"]
        overview = (await asyncio.to_thread(crew.get, "/api/v1/overview")).json()
        assert overview["links_total"] == 12
        assert {link["client"].split()[0] for link in overview["links"]} == {f"client-{number}" for number in range(12)}
        nodes = {node["id"].partition("~")[0]: node["connections"] for node in overview["nodes"]["nodes"]}
        assert set(nodes) == {"crew-w1", "crew-w2"}
    await asyncio.to_thread(_holds_of_one_are_released_at_any, crew)


@pytest.mark.whole  # each is a node, of which test_users.py has it
async def test_a_grant_that_is_taken_away_ends_links_at_each_worker(crew: Crew, client: headgate.Client) -> None:
    users = UserStore(client.store.server, client.namespace)
    await users.change(lambda known: known.update(anonymous=User(grants=[parse_grant("produce:orders")])))

    async def counted(**wanted: int) -> None:
        async def is_so() -> bool:
            figures = await asyncio.to_thread(crew.figures)
            return all(figures.get(f"headgate_node_{name.replace('_', ' ')}", 0) == count
                       for name, count in wanted.items())  # fmt: skip

        await wait_until(is_so)

    async with AsyncExitStack() as stack:
        for peer in await spread(stack, crew):
            await peer.send(await peer.sender("orders"), "one")
        await counted(connections=12, links_in=12)
        await users.change(lambda known: known.update(anonymous=User(grants=[parse_grant("browse:orders")])))
        await counted(connections=12, links_in=0)
        await users.change(lambda known: known.clear())
        await counted(connections=0)


@pytest.mark.whole  # each is a node, of which tests/amqp/doors has it
async def test_connections_of_a_user_are_counted_over_all_workers_and_those_of_a_killed_one_come_back(
    start_crew: StartCrew, client: headgate.Client
) -> None:
    """Mutants: each worker has the quota; what a killed one held is counted for ever."""
    users = UserStore(client.store.server, client.namespace)
    await users.change(lambda known: known.update(anonymous=User(grants=[parse_grant("produce:orders")])))
    await client.apply_policy(loads('[[user_limit]]\nname = "all"\nusers = ["*"]\nconnections = 5\n'))
    crew = start_crew("--ttl", "3")

    peers: list[Peer] = []

    async def come(stack: AsyncExitStack, count: int) -> int:
        """Come as often, and return how many connections are there then."""
        for _ in range(count):
            with contextlib.suppress(Disconnected):
                peers.append(await Peer.connect(crew.port))
                stack.push_async_callback(peers[-1].close)
        for peer in peers:
            with contextlib.suppress(Disconnected):
                if not (peer.lost or peer.over):
                    await peer.sender("orders", f"again{next(numbers)}")
        return sum(not (peer.lost or peer.over) for peer in peers)

    numbers = itertools.count()
    async with AsyncExitStack() as stack:

        async def is_full() -> bool:
            there = await come(stack, 2)
            assert there <= 5
            return there == 5

        await wait_until(is_full, timeout=120, description="there are as many as may be")
        assert await come(stack, 6) == 5, "at neither worker"
        victim = crew.workers[0]
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(wait_for, lambda: victim not in crew.workers and len(crew.workers) == 2)
        await wait_until(is_full, timeout=120, description="as many come as the killed one had")


@pytest.mark.longest
def test_a_killed_worker_is_replaced_sums_never_fall_and_a_killed_supervisor_takes_all_along(crew: Crew) -> None:
    """Mutants: what a worker that ended had counted is forgotten; nobody begins in its place."""

    async def send() -> None:
        async with AsyncExitStack() as stack:
            for peer in await spread(stack, crew):
                assert await peer.send(await peer.sender("orders"), "one") == ("accepted", "")

    asyncio.run(send())
    wait_for(lambda: crew.figures().get("headgate_node_messages_total in") == 12)
    victim, other = crew.workers
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: victim not in crew.workers and len(crew.workers) == 2, description="another one in its place")
    assert other in crew.workers
    wait_for(crew.is_ready)
    wait_for(lambda: crew.figures()["headgate_node_answering_workers"] == 2)
    figures = crew.figures()
    assert figures["headgate_node_messages_total in"] == 12
    assert figures["headgate_node_replaced_workers_total"] == 1
    assert "ended by signal 9" in crew.errors
    assert "starts again in 0.1 s" in crew.errors
    _ends_with_its_supervisor(crew, frozen=True)


@pytest.mark.longest
def test_a_stopped_worker_is_replaced_and_it_is_not_ready_meanwhile(crew: Crew) -> None:
    """Mutants: any worker that is ready itself says so for all; the one that is stopped keeps its clients for ever."""
    assert crew.is_ready()
    frozen, other = crew.workers

    async def go() -> None:
        async with AsyncExitStack() as stack:
            peers = await spread(stack, crew)
            os.kill(frozen, signal.SIGSTOP)
            reason = await wait_until(lambda: asyncio.to_thread(_reason, crew), timeout=60)
            assert re.fullmatch("worker [12] (does not answer|begins, or stops)", reason)
            await wait_until(lambda: frozen not in crew.workers and len(crew.workers) == 2, timeout=60)
            await wait_until(lambda: any(peer.lost for peer in peers), description="word to its clients, to come again")
            assert not all(peer.lost for peer in peers)

    asyncio.run(go())
    assert f"(pid {frozen}) is stopped, and is killed" in crew.errors
    assert other in crew.workers
    wait_for(crew.is_ready)


def _reason(crew: Crew) -> str:
    try:
        return str(httpx.get(f"{crew.admin}/ready", timeout=3, verify=False).json().get("reason", ""))
    except httpx.HTTPError:  # the connection fell to the frozen one
        return ""


@pytest.mark.whole  # where a worker is frozen, it is the end of the crew whose killed worker is replaced
@pytest.mark.parametrize("frozen", [True, False])
def test_a_killed_supervisor_takes_its_workers_along(crew: Crew, frozen: bool) -> None:
    _ends_with_its_supervisor(crew, frozen=frozen)


def _ends_with_its_supervisor(crew: Crew, *, frozen: bool) -> None:
    """Mutant: workers serve on, and nobody watches over them; a frozen one would serve as soon as it wakes."""
    workers = crew.workers
    if frozen:
        os.kill(workers[0], signal.SIGSTOP)
    os.kill(crew.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, workers)), description="the end of all")
    with pytest.raises(ConnectionRefusedError), closing(socket.create_connection(("127.0.0.1", crew.port))):
        pass


@pytest.mark.longest
async def test_a_rolling_restart_is_never_unready_and_loses_nothing(crew: Crew, client: headgate.Client) -> None:
    """Clients that come again where they are sent to have all their messages accepted, once or more, never none."""
    before = set(crew.workers)
    for worker in before:
        os.kill(worker, signal.SIGHUP)  # as of one who sends it to all processes of that name
    over, unready, accepted = threading.Event(), [], set()

    def watch() -> None:
        while not over.is_set():
            answer = None
            try:
                answer = crew.get("/ready")
            except httpx.HTTPError:
                continue  # a worker that ends hangs up
            if answer.status_code != 200 and not re.search("(did|does) not answer", answer.text):  # a busy machine
                unready.append(answer.text)
            time.sleep(0.1)  # others want the processor too

    async def send(name: str) -> None:
        number = 0
        while not over.is_set() or number < 5:
            try:
                async with asyncio.timeout(20):
                    peer = await Peer.connect(crew.port, name)
                    try:
                        link = await peer.sender("orders")
                        while not over.is_set() or number < 5:
                            outcome, _ = await peer.send(link, f"{name}-{number}")
                            if outcome != "accepted":
                                break
                            accepted.add(f"{name}-{number}")
                            number += 1
                            await asyncio.sleep(0.05)
                    finally:
                        await peer.close()
            except (Disconnected, OSError, TimeoutError, AssertionError):
                await asyncio.sleep(0.02)

    watching = asyncio.create_task(asyncio.to_thread(watch))
    senders = [asyncio.create_task(send(f"c{number}")) for number in range(4)]
    try:
        os.kill(crew.pid, signal.SIGHUP)
        await wait_until(lambda: "all workers were restarted" in crew.errors, timeout=90)
    finally:
        over.set()
        await asyncio.wait_for(asyncio.gather(*senders, watching), 60)
    assert unready == []
    assert len(crew.workers) == 2
    assert before.isdisjoint(crew.workers)
    got: set[str] = set()
    consumer = await client.session("reader").consumer("orders")
    while not accepted <= got:
        async with asyncio.timeout(30):
            message = await anext(consumer)
        got.add(message.body.decode() if isinstance(message.body, bytes) else message.body)
        await message.accept()
    assert " ERROR " not in crew.errors
    assert crew.figures()["headgate_node_messages_total in"] >= len(accepted)


@pytest.mark.whole  # test_failures.py has it of a node
async def test_it_drains_all_workers_when_told_to_stop(crew: Crew, client: headgate.Client) -> None:
    """Mutant: workers are killed, or end at once: messages that wait for room would have no outcome."""
    await client.apply("narrow", limit_messages=1)
    async with AsyncExitStack() as stack:
        peers = await spread(stack, crew, 6)
        links = [await peer.sender("narrow") for peer in peers]
        waits = [await peer.put(link, "one") for peer, link in zip(peers, links, strict=True)]
        await wait_until(lambda: any(wait.done() for wait in waits))
        crew.terminate()
        await wait_until(lambda: not _listens(crew.port))
        consumer = await client.session("reader").consumer("narrow")
        for _ in peers:
            async with asyncio.timeout(30):
                await (await anext(consumer)).accept()
        assert await asyncio.gather(*waits) == [("accepted", "")] * len(peers)
        assert await asyncio.to_thread(crew.wait) == 0
    assert " ERROR " not in crew.errors


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("begun", [False, True])
async def test_one_that_still_reads_its_code_ends_at_once(caplog: pytest.LogCaptureFixture, begun: bool) -> None:
    """Mutants: it has its time to drain, as if it served; what is said before it is there is lost, or an error."""
    post = WorkerAssignment(0, "crew", 1, None, None)
    supervisor = Supervisor([sys.executable, "-c", "import time; time.sleep(600)"], 1, post, 600.0, lambda _: None)
    supervisor._over = asyncio.get_running_loop().create_future()
    supervisor._obey(supervisor._machine.begin(0.0))
    (worker,) = supervisor._workers.values()
    await wait_until(lambda: bool(worker.pid) or not begun)
    supervisor._stop()
    assert await asyncio.wait_for(supervisor._over, 60) == 0
    assert "ERROR" not in caplog.text


@pytest.mark.whole  # the first one ends it in what stays
def test_a_second_signal_ends_it_at_once(start_crew: StartCrew) -> None:
    crew = start_crew("--drain", "60")
    workers = crew.workers

    async def hang_on() -> int:
        async with AsyncExitStack() as stack:
            (peer,) = await spread(stack, crew, 1)
            link = await peer.sender("orders")
            assert link is not None
            crew.terminate()
            crew.terminate()
            return await asyncio.to_thread(crew.wait)

    assert asyncio.run(hang_on()) == 0
    assert not any(map(is_alive, workers))


def test_what_one_worker_cannot_do_ends_the_command_with_its_words(redis_url: str) -> None:
    """Mutant: it is begun again for ever."""
    done = run_node("--workers", "2", "--port", "0", "--no-admin", "--redis", "unix:///nowhere/redis.sock")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("headgate: ") == 1
    assert redis_url
    assert done.stdout == ""


@each("descriptor", ["7", "0", "-1", "99999999999"])
def test_what_only_a_supervisor_says_is_refused_to_others(descriptor: str) -> None:
    done = run_node("--worker", descriptor, "--redis", "unix:///nowhere/redis.sock")
    assert done.returncode == 2, done.stderr
    assert "only the supervisor that --workers starts gives this to its workers" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.whole
def test_a_port_that_somebody_has_is_refused_also_to_another_with_workers(crew: Crew) -> None:
    """Mutant: the system lets two of one user share it, and clients would come to either's namespace."""
    done = run_node("--workers", "2", "--port", str(crew.port), "--no-admin", "--redis", "unix:///nowhere/redis.sock")
    assert done.returncode == 2
    assert f"AMQP cannot listen on 127.0.0.1:{crew.port}: Address already in use" in done.stderr
    assert len(children(crew.pid)) == 2


def _holds_of_one_are_released_at_any(crew: Crew) -> None:
    policy = '[[limiter]]\nmatch = "llm"\n[[limiter.limit]]\nname = "slots"\nat_once = 20\n'
    toml = {"content-type": "application/toml"}
    put = httpx.put(f"{crew.admin}/api/v1/policy", content=policy, headers=toml, verify=False)
    assert put.status_code == 200, put.text
    holds = [_held(crew) for _ in range(20)]
    refused = httpx.post(f"{crew.admin}/v1/limits/llm/admit", json={"amounts": {"slots": 1}}, verify=False)
    assert refused.status_code == 429
    for hold in holds:
        answer = httpx.post(f"{crew.admin}/v1/limits/llm/release", json={"hold": hold}, verify=False).json()
        assert answer["held"], answer


def _held(crew: Crew) -> str:
    """Return a new hold; a worker may hear of the policy a moment later than the one that applied it."""
    end = time.monotonic() + 60
    while True:
        answer = httpx.post(f"{crew.admin}/v1/limits/llm/admit", json={"amounts": {"slots": 1}}, verify=False)
        if answer.status_code == 200 or time.monotonic() > end:
            return str(answer.json()["hold"])
        time.sleep(0.1)


@pytest.mark.whole  # tests/workers/test_machine.py has what it is told
def test_systemd_hears_how_it_is(redis_url: str, cleanup_namespace: str, tmp_path: Path) -> None:
    """Mutant: a worker tells too, and systemd takes the first of them for all."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = os.environ | {
            "HEADGATE_URL": redis_url, "HEADGATE_NAMESPACE": cleanup_namespace,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
        }  # fmt: skip
        with (tmp_path / "log").open("w") as log:
            node = Forked(
                "headgate_coordinator", "node", "--workers", "2", "--port", "0", "--no-admin",
                environment=environment, stdout=PIPE, stderr=log,
            )  # fmt: skip
        try:
            assert manager.recv(100) == b"READY=1"
            assert len(children(node.pid)) == 2
            node.send_signal(signal.SIGHUP)
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(100))
            assert manager.recv(100) == b"READY=1"
            node.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert node.wait(60) == 0
        finally:
            node.kill()
            node.wait(30)
            assert node.stdout is not None
            node.stdout.close()
