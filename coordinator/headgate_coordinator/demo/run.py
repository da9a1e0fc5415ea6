"""The demo from the parent's side: it starts the processes, kills one, and judges what they wrote down."""

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import headgate
from headgate import Client, HeadgateError, InvalidValue
from headgate.redis.embedded import EmbeddedRedis
from headgate.redis.keys import Address
from headgate.units import parse_size
from headgate_coordinator.demo import CONSUMERS, PRODUCERS, QUEUE, TTL, VICTIM
from headgate_coordinator.demo.corpus import MIN_LIMIT, find_files, standard_library
from headgate_coordinator.demo.processes import Actor
from headgate_coordinator.demo.report import Report
from headgate_coordinator.demo.table import Frame, Rate, Row, View
from headgate_coordinator.demo.verdict import GRACE, Facts, judge
from headgate_coordinator.demo.watch import EVERY, Watch
from headgate_coordinator.terminal import size

MIN_SECONDS: Final = 5.0
MAX_SECONDS: Final = 600.0
_JOINS, _DIES, _ENDS = 0.15, 0.35, 0.85  # when things happen, as parts of the whole
_PATIENCE: Final = 30.0  # seconds for anything that is expected to happen soon


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo is to do; ``url`` None: on a private Redis."""

    seconds: float
    limit: int
    source: Path
    url: str | None

    @classmethod
    def of(cls, *, seconds: float, limit: str, source: Path | None, url: str | None) -> "Options":
        """Return checked options.

        Raises:
            InvalidValue: one of them cannot be used.
        """
        in_bytes = parse_size(limit, "limit")
        if in_bytes < MIN_LIMIT:
            raise InvalidValue(f"limit: {limit!r} is too small to show anything; use {size(MIN_LIMIT)} or more")
        chosen = (source or standard_library()).absolute()
        find_files(chosen)
        return cls(seconds, in_bytes, chosen, url or None)


async def run(options: Options, view: View) -> Report:
    """Run the demo. Whatever happens, nothing that it started or wrote is left.

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
    """One run: its processes, and what was seen of them."""

    def __init__(self, options: Options, view: View, client: Client, directory: Path, url: str) -> None:
        self.actors = [Actor("producer", speed, directory) for speed in PRODUCERS]
        self.actors += [Actor("consumer", speed, directory) for speed in CONSUMERS]
        self._options = options
        self._view = view
        self._client = client
        self._environment = {"HEADGATE_URL": url, "HEADGATE_NAMESPACE": client.namespace}
        self._address = Address.of(client.namespace, QUEUE)
        self._watch = Watch(client, self._address)
        self._rates = {actor.name: Rate() for actor in self.actors}
        self._events: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._looking: asyncio.Task[None] | None = None
        self._held = 0
        self._reclaimed: float | None = None
        self._leased_without_it = False
        self._stored: tuple[int, ...] = ()
        self._counted: tuple[int, ...] = ()
        self._exits: dict[str, int | None] = {}

    @property
    def _broken(self) -> bool:
        """Whether a process ended that should not, or we cannot see any more; what is left of the story is skipped."""
        blind = self._looking is None or self._looking.done()
        return blind or any(actor.broken for actor in self.actors)

    @property
    def _victim(self) -> Actor:
        return self._actor("producer", VICTIM)

    async def play(self) -> None:
        """Let it all happen."""
        seconds = self._options.seconds
        await self._client.apply(QUEUE, limit=self._options.limit)
        looking = self._looking = asyncio.create_task(self._keep_looking())
        try:
            for actor in self.actors:
                if actor.name != "consumer fast":
                    await self._start(actor)
            await self._until(lambda: all(a.record.session for a in self.actors if a.pid), _PATIENCE)
            self._began = time.monotonic()
            self._tell("three producers and the slow consumer are at work")
            if await self._until(lambda: self._watch.blocked > 0, seconds * _JOINS):
                self._tell("the limit is reached: producers wait until there is room")
            await self._at(seconds * _JOINS)
            await self._start(self._actor("consumer", "fast"))
            self._tell("the fast consumer joins")
            await self._at(seconds * _DIES)
            await self._kill()
            await self._at(seconds * _ENDS)
            await self._end()
        finally:
            await _end(looking)
        if not looking.cancelled() and (error := looking.exception()):
            raise error

    async def clean_up(self) -> int:
        """End what still runs and delete what is in Redis; returns how many keys are left all the same."""
        for actor in self.actors:
            await actor.kill()
        server = self._client.store.server
        mine = f"hg:{{{self._client.namespace}/*"
        try:
            await self._client.remove(QUEUE)
            for key in await server.scan(mine):  # e.g. receipts, which outlive their sessions
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
            held=self._held,
            reclaimed=self._reclaimed,
            leased_without_it=self._leased_without_it,
            peak=sample.peak,
            sampled_peak=self._watch.peak,
            blocked=self._watch.blocked,
            waits=sample.waits_begun,
            stored=self._stored,
            counted=self._counted,
            exits=self._exits,
            errors={actor.name: actor.error for actor in self.actors if actor.error},
            lingering=(),
        )

    async def _start(self, actor: Actor) -> None:
        arguments = ["--limit", str(self._options.limit)]
        arguments += ["--source", str(self._options.source)] if actor.role == "producer" else []
        await actor.start(arguments, self._environment)

    async def _kill(self) -> None:
        """Kill the victim while it has credit in hand, and see when the credit is back."""
        await self._catch_with_credit()
        died_at = time.monotonic()
        await self._victim.kill()
        self._victim.record.update()
        self._tell(f"producer {VICTIM} is killed with -9; its credit stays leased until its session expires")
        session, patience = self._victim.record.session, TTL + GRACE + _PATIENCE
        self._reclaimed, self._held = await self._watch.reclaim_of(session, since=died_at, patience=patience)
        count = await self._client.recount(QUEUE)
        self._leased_without_it = count.equal
        if self._reclaimed is not None:
            self._tell(f"its {size(self._held)} of credit is back, {self._reclaimed:.2f} s after its death")

    async def _catch_with_credit(self) -> None:
        """Freeze the victim at an instant when it holds credit: where room is scarce it has some only now and then."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and not self._broken:
            if await self._victim_holds():
                self._victim.send(signal.SIGSTOP)
                # Twice: what it had sent just before may reach Redis after our first look, but not after our second.
                if await self._victim_holds() and await self._victim_holds():
                    return
                self._victim.send(signal.SIGCONT)
            await asyncio.sleep(EVERY / 10)

    async def _victim_holds(self) -> bool:
        return (await self._watch.look()).holds.get(self._victim.record.session, 0) > 0

    async def _end(self) -> None:
        """Stop the producers, let the consumers empty the queue, stop them, and count."""
        await self._stop("producer")
        for actor in self.actors:
            if actor.role == "consumer":
                actor.tell_to_hurry()
        self._tell("the producers have stopped; the consumers empty the queue at full speed")
        await self._watch.look()
        await self._until(lambda: self._watch.now.pending_messages == 0, self._options.seconds + _PATIENCE)
        await self._stop("consumer")
        await self._watch.look()
        count = await self._client.recount(QUEUE)
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
        await self._until(lambda: time.monotonic() - self._began >= elapsed, elapsed)

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
        elapsed = time.monotonic() - self._began
        self._events.append((elapsed, text))
        self._view.tell(elapsed, text)

    def _show(self) -> None:
        now = time.monotonic()
        self._view.show(
            Frame(
                now - self._began,
                self._options.seconds,
                self._options.limit,
                self._watch.now,
                [self._row(actor, now) for actor in self.actors],
                self._events,
            )
        )

    def _row(self, actor: Actor, now: float) -> Row:
        record, sample = actor.record, self._watch.now
        rate, byte_rate = self._rates[actor.name].update(now, record.messages, record.size)
        if actor.role == "producer":
            holds = size(sample.holds.get(record.session, 0))
        else:
            holds = f"{sample.unsettled.get(record.session, 0)} msgs"
        state = "sending" if actor.role == "producer" else "receiving"
        if actor.pid is None:
            state = "not started yet"
        elif actor.exit_code == -signal.SIGKILL:
            state = "killed, leased" if record.session in sample.holds else "killed, reclaimed"
        elif actor.exit_code is not None:
            state = "ended"
        elif not record.session:
            state = "starting"
        elif record.session in sample.waits:
            state = f"waits {sample.waits[record.session]:.1f} s"
        return Row(actor.name, str(actor.pid or ""), record.messages, record.size, rate, byte_rate, holds, state)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task until it is over: in Python 3.11 `wait_for`, which redis-py sends with, may swallow one."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=EVERY)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # the number is somebody else's by now
    return True
