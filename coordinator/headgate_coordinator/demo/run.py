"""The demo's parent process starts the others, kills one, and judges what they wrote down."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import headgate
from headgate import Client, HeadgateError
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address
from headgate_coordinator.demo import (
    AMQP_CONSUMERS,
    AMQP_PRODUCERS,
    CONSUMERS,
    NODE_VICTIM,
    NODES,
    PRODUCERS,
    QUEUE,
    TTL,
    VICTIM,
)
from headgate_coordinator.demo.forwarding import Forwarded, Forwarding
from headgate_coordinator.demo.killing import PATIENCE, Killing
from headgate_coordinator.demo.options import Options
from headgate_coordinator.demo.pipeline import Audited, audit, why_no_pipeline
from headgate_coordinator.demo.processes import Actor
from headgate_coordinator.demo.report import Report
from headgate_coordinator.demo.rows import row_of
from headgate_coordinator.demo.table import Frame, Rate, View
from headgate_coordinator.demo.verdict import GRACE, Facts, NodeDeath, judge
from headgate_coordinator.demo.watch import EVERY, Watch
from headgate_coordinator.operate.terminal import size
from headgate_coordinator.service.node_extra import why_no_node

LEDGER: Final = 10_000_000
"""Entries of its ledger that are kept: all, to be audited in the end."""
_JOINS, _DIES, _NODE_DIES, _ENDS = 0.15, 0.35, 0.6, 0.85  # when things happen, as parts of the whole


async def run(options: Options, view: View) -> Report:
    """Run the demo. In any case nothing that it started or wrote is left.

    Raises:
        CoordinatorUnavailable, AccessDenied, InvalidValue: Redis, or its URL, cannot be used.
    """
    task = asyncio.current_task()
    if task:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    directory = Path(tempfile.mkdtemp(prefix="hg-demo-"))
    redis: EmbeddedRedis | None = None
    try:
        if options.url is None:
            redis = EmbeddedRedis.start()
        namespace = f"demo-{secrets.token_hex(6)}"
        async with headgate.connect(redis.url if redis else options.url, namespace=namespace) as client:
            demo = _Demo(options, view, client, directory, redis.url if redis else options.url or "")
            playing = asyncio.create_task(demo.play())
            try:
                with view:
                    await asyncio.wait([playing])
                playing.result()
            finally:
                await _end(playing)
                keys = await demo.clean_up()
        facts = demo.facts()
    finally:
        if redis:
            redis.stop()
        shutil.rmtree(directory, ignore_errors=True)
    left = [f"process {actor.name}" for actor in demo.actors if actor.pid and _runs(actor.pid)]
    left += [f"{keys} keys"] if keys else []
    left += [str(path) for path in (directory, redis.directory if redis else directory) if path.exists()]
    left += ["the private Redis"] if redis and _runs(redis.pid) else []
    facts = replace(facts, lingering=tuple(left))
    return Report(options.seconds, str(options.source), facts, judge(facts))


class _Demo:
    """`_Demo` is one run: it has its processes, and what was seen of them."""

    def __init__(self, options: Options, view: View, client: Client, directory: Path, url: str) -> None:
        self.no_node = why_no_node()
        self.actors = _actors(directory, nodes=self.no_node is None)
        self._options = options
        self._view = view
        self._client = client
        self._environment = {"HEADGATE_URL": url, "HEADGATE_NAMESPACE": client.namespace}
        self._address = Address.of(client.namespace, QUEUE)
        self._watch = Watch(client, self._address)
        self._rates = {actor.name: Rate() for actor in self.actors}
        self._events: list[tuple[float, str]] = []
        self._began: float | None = None
        self._page = ""
        self._forwarding: Forwarding | None = None
        self._forwarded: Forwarded | None = None
        self._no_pipeline = why_no_pipeline() if options.pipeline else "nobody asked for it"
        self._audited: Audited | None = None
        self._auditing: float | None = None  # since when
        self._looking: asyncio.Task[None] | None = None
        self._stack = contextlib.AsyncExitStack()
        self._killing = Killing(self._actor("producer", VICTIM))
        self._node_death: NodeDeath | None = None
        self._stored: tuple[int, ...] = ()
        self._counted: tuple[int, ...] = ()
        self._exits: dict[str, int | None] = {}

    @property
    def _elapsed(self) -> float:
        """Seconds since all were at work; 0 before."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def _broken(self) -> bool:
        """Whether a process ended that should not, or we cannot see any more; what is left of the story is skipped."""
        blind = self._looking is None or self._looking.done()
        return blind or any(actor.broken for actor in self.actors)

    async def play(self) -> None:
        """Let it all happen."""
        seconds = self._options.seconds
        await self._client.apply(QUEUE, limit=self._options.limit, ledger_keep=LEDGER)
        looking = self._looking = asyncio.create_task(self._keep_looking())
        try:
            if not self.no_node:
                self._forwarding = await self._stack.enter_async_context(Forwarding(self._client))
                self._environment |= self._forwarding.environment
                await self._forwarding.govern()
            await self._begin()
            if await self._until(lambda: self._watch.blocked > 0, seconds * _JOINS):
                self._tell("the limit is reached: producers wait until there is room")
            await self._at(seconds * _JOINS)
            for actor in self.actors:
                if actor.pid is None:
                    await self._start(actor)
            self._tell("the fast consumer joins" + ("" if self.no_node else ", and one at a node"))
            await self._at(seconds * _DIES)
            if not self._broken:
                await self._kill()
            await self._at(seconds * _NODE_DIES)
            if not (self._broken or self.no_node):
                await self._kill_node()
            await self._at(seconds * _ENDS)
            await self._end()
            if self._no_pipeline is None and not self._broken:
                self._tell("Spark starts, and reads the ledger of what happened, to prove that limits held")
                self._auditing = time.monotonic()
                self._audited = await audit(self._environment, self._options.report)
        finally:
            await self._stack.aclose()
            await _end(looking)
            error = None if looking.cancelled() else looking.exception()  # asked for, whatever else is raised
        if error:
            raise error

    async def clean_up(self) -> int:
        """End what still runs and delete what is in Redis; returns how many keys are left all the same."""
        for actor in self.actors:
            await actor.kill()
        server = self._client.store.server
        mine = f"hg:{{{self._client.namespace}*"  # nobody else's name begins like that
        try:
            await self._client.remove(QUEUE)
            for key in await server.scan(
                mine
            ):  # e.g. receipts, which outlive their sessions, and the killed node's entry
                await server.command(key.encode(), "UNLINK", key)
            return len(await server.scan(mine))
        except HeadgateError:
            return 0  # no Redis, no keys

    def facts(self) -> Facts:
        """Return what is known at the end; what lingers is for the caller to see."""
        for actor in self.actors:
            actor.record.update()
        sample = self._watch.now
        return Facts(
            limit=self._options.limit,
            ttl=TTL,
            accepted=[message for actor in self.actors for message in actor.record.accepted],
            received={a.speed: a.record.received for a in self.actors if a.role == "consumer"},
            victim=VICTIM,
            held=self._killing.held,
            reclaimed=self._killing.reclaimed,
            leased_without_it=self._killing.leased_without_it,
            peak=sample.peak,
            sampled_peak=self._watch.peak,
            blocked=self._watch.blocked,
            waits=sample.waits_begun,
            stored=self._stored,
            counted=self._counted,
            exits=self._exits,
            errors={actor.name: actor.error for actor in self.actors if actor.error},
            lingering=(),
            looks=self._watch.looks,
            node=self._node_death,
            no_node=self.no_node,
            forwarded=self._forwarded,
            audited=self._audited,
            no_pipeline=self._no_pipeline,
        )

    async def _begin(self) -> None:
        """Start all but the consumers that join later; AMQP clients when the nodes listen."""
        nodes = [actor for actor in self.actors if actor.role == "node"]
        self._tell("the processes start, each a Python of its own")
        for actor in [*nodes, *(a for a in self.actors if a.role == "producer" and not a.amqp)]:
            await self._start(actor)
        await self._start(self._actor("consumer", "slow"))
        await self._until(lambda: all(node.record.ready for node in nodes), PATIENCE)
        for actor in self.actors:
            if actor.role == "producer" and actor.amqp:
                await self._start(actor)
        await self._until(lambda: all(a.record.ready for a in self.actors if a.pid), PATIENCE)
        self._began = time.monotonic()
        if self.no_node:
            self._tell("nodes are left out: the extra amqp is not installed")
            self._tell("three producers and the slow consumer are at work")
        else:
            self._tell("two nodes, five producers (two of AMQP) and the slow consumer are at work")
            if self._forwarding:
                await self._forwarding.begin()
                self._tell("the nodes forward a topic over a bridge, and over a route to a second site")
            self._page = f"{nodes[-1].record.page}/"
            self._view.tell(0.0, f"watch it on a live page: {self._page}")

    async def _start(self, actor: Actor) -> None:
        arguments = ["--limit", str(self._options.limit)]
        arguments += ["--source", str(self._options.source)] if actor.role == "producer" else []
        if actor.amqp:
            nodes = [a for a in self.actors if a.role == "node"]
            arguments += ["--nodes", *(f"{node.speed}={node.record.address}" for node in nodes)]
        await actor.start(arguments, self._environment)

    async def _kill(self) -> None:
        """Kill a producer, and see when its credit is back."""
        killing = self._killing
        await killing.kill(self._watch)
        self._tell(f"{killing.victim.name} is killed with -9; its credit stays leased until its session expires")
        await killing.see_it_back(self._watch, self._client)
        if killing.reclaimed is not None:
            self._tell(f"its {size(killing.held)} of credit is back, {killing.reclaimed:.2f} s after its death")

    async def _kill_node(self) -> None:
        """Kill a node, and see when its credit is back, and its clients at work."""
        node = self._actor("node", NODE_VICTIM)
        killing, clients = Killing(node), [actor for actor in self.actors if actor.record.at == node.speed]
        await killing.kill(self._watch)
        self._tell(f"{node.name} is killed with -9; its {len(clients)} AMQP clients look for another")
        await self._until(lambda: all(client.record.at != node.speed for client in clients), PATIENCE)
        back = {
            client.name: client.record.since - killing.died_at if client.record.at != node.speed else None
            for client in clients
        }
        if None not in back.values():
            most = max((seconds for seconds in back.values() if seconds is not None), default=0.0)
            self._tell(
                f"they are at the other node {most:.2f} s after its death, and send again what it had not accepted"
            )
        await killing.see_it_back(self._watch, self._client)
        if killing.reclaimed is not None:
            self._tell(f"its {size(killing.held)} of credit is back, {killing.reclaimed:.2f} s after its death")
        self._node_death = NodeDeath(
            node.speed, len(NODES), killing.held, killing.reclaimed, killing.leased_without_it, back
        )

    async def _end(self) -> None:
        """Stop the producers, let the consumers empty the queue, stop them, and count."""
        await self._stop("producer")
        if self._forwarding:
            self._forwarded = await self._forwarding.finish()
        for actor in self.actors:
            if actor.role == "consumer":
                actor.tell_to_hurry()
        self._tell("the producers have stopped; the consumers empty the queue at full speed")
        await self._watch.look()
        await self._until(lambda: self._watch.now.pending_messages == 0, self._options.seconds + PATIENCE)
        await self._stop("consumer")
        await self._stop("node")
        await self._watch.look()
        count = await self._watch.count(TTL + GRACE)
        self._stored, self._counted = count.stored, count.counted
        for actor in self.actors:
            actor.record.update()
        self._tell("everybody has stopped")
        self._show()

    async def _stop(self, role: str) -> None:
        ending = [actor for actor in self.actors if actor.role == role]
        for actor in ending:
            actor.tell_to_stop()
        codes = await asyncio.gather(*(actor.ended() for actor in ending))
        self._exits |= {actor.name: code for actor, code in zip(ending, codes, strict=True)}

    async def _at(self, elapsed: float) -> None:
        await self._until(lambda: self._elapsed >= elapsed, elapsed)

    async def _until(self, happened: Callable[[], bool], patience: float) -> bool:
        """Wait until something is so; gives up after ``patience`` seconds, or when a process ended that should not."""
        deadline = time.monotonic() + patience
        while not happened():
            if self._broken or time.monotonic() > deadline:
                return False
            await asyncio.sleep(EVERY)
        return True

    async def _keep_looking(self) -> None:
        while True:
            await self._watch.look()
            for actor in self.actors:
                actor.record.update()
            self._show()
            await asyncio.sleep(EVERY)

    def _actor(self, role: str, speed: str) -> Actor:
        return next(actor for actor in self.actors if (actor.role, actor.speed) == (role, speed))

    def _tell(self, text: str) -> None:
        self._events.append((self._elapsed, text))
        self._view.tell(self._elapsed, text)

    def _show(self) -> None:
        now = time.monotonic()
        self._view.show(
            Frame(
                self._elapsed,
                self._options.seconds,
                self._options.limit,
                self._watch.now,
                [row_of(actor, self._watch.now, self._rates[actor.name], now) for actor in self.actors],
                self._events,
                self._page,
                self._forwarding.summary if self._forwarding else "",
                "" if self._auditing is None else f"waiting for Spark, for {now - self._auditing:.0f} s so far",
            )
        )


def _actors(directory: Path, *, nodes: bool) -> list[Actor]:
    actors = [Actor("producer", speed, directory) for speed in PRODUCERS]
    actors += [Actor("producer", name, directory, amqp=True) for name in AMQP_PRODUCERS if nodes]
    actors += [Actor("consumer", speed, directory) for speed in CONSUMERS]
    actors += [Actor("consumer", name, directory, amqp=True) for name in AMQP_CONSUMERS if nodes]
    return actors + [Actor("node", name, directory) for name in NODES if nodes]


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task until it is over: in Python 3.11 `wait_for`, which redis-py sends with, may swallow one."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=EVERY)
    if not task.cancelled():
        task.exception()  # else asyncio prints one that nobody asks for, as when Redis is slow while all is interrupted


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is somebody else's by now
    return True
