"""A world: a loop, a network, a server, and processes that run the real client, all of one seed."""

import contextlib
import functools
import gc
import importlib
import logging
import sys
import types
import warnings
from collections.abc import Coroutine, Iterable, Iterator
from contextvars import Context
from random import Random
from typing import Any, Final

import headgate
import headgate.amqp.remote  # which clients import as they need it
from headgate.client import Client
from tests.simulation.cluster import SLOTS, Cluster, slot_of
from tests.simulation.deployments import Deployment, TwoSites, Watched
from tests.simulation.loop import BEGINS, Process, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.server import DAY, Backing, Rewrite

PRODUCT: Final = ("headgate", "headgate_coordinator", "tenacity")
STORAGE: Final = 0.02
"""Seconds that an operation of a storage takes, on the average."""
NEVER_ALONE: Final = (
    *("time", "time_ns", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "sleep"),
    *("getpid", "gethostname", "urandom", "uuid1", "uuid4", "token_hex", "token_bytes", "token_urlsafe", "randbelow"),
    *("random", "uniform", "randrange", "randint", "choice", "shuffle", "sample"),
)
"""Functions that know the real time, or a real secret, and that no module of the product may have by their names."""
KINDS: Final[dict[str, type[Deployment]]] = {
    "alone": Deployment,
    "sentinels": Watched,
    "cluster": Cluster,
    "sites": TwoSites,
}


class World:
    """Everything of one history; ``servers`` says which there are."""

    def __init__(self, backing: Backing, seed: int, *, servers: str, rewrite: Rewrite | None = None) -> None:
        self.loop = VirtualLoop()
        self.loop.storage_takes = functools.partial(Random(f"storage {seed}").expovariate, 1 / STORAGE)
        self.chance = Random(f"world {seed}")
        self.network = Network(self.loop, Random(f"network {seed}"))
        chance = Random(f"deployment {seed}")
        self.deployment = KINDS[servers](self.loop, self.network, backing, rewrite=rewrite, chance=chance)
        self.log: list[tuple[Any, ...]] = []
        self.over = False
        self.events = 0
        """Callbacks that the history took, once it is over; the end of its tasks is none of it."""
        self.sum = 0
        """Likewise of all that went over the network, and when."""
        self.secret = Random(f"secret {seed}")
        self._contexts: dict[Process, Context] = {}

    def note(self, *what: Any) -> None:
        """Add to the history, until it is over: how tasks are ended is none of it."""
        if not self.over:
            self.log.append((round(self.loop.now - BEGINS, 6), *what))

    def process(self, name: str, *, rate: float = 1.0) -> Process:
        """Return a new process, which does nothing yet."""
        process = Process(name, rate=rate)
        self._contexts[process] = self.loop.begin(process)
        return process

    def spawn(self, process: Process, life: Coroutine[Any, Any, Any]) -> Any:
        """Begin a task of a process; the tasks that it begins are that one's too."""
        return self.loop.create_task(life, name=process.name, context=self._contexts[process])

    def kill(self, process: Process) -> None:
        """End a process as ``kill -9`` does."""
        process.dead = True
        self.network.hang_up(process)

    def run(self, story: Coroutine[Any, Any, Any]) -> Any:
        """Run a story of this world to its end; nothing of the product knows the real time or a real secret."""
        with of_this_world(self):
            try:
                return self.loop.run_until_complete(story)
            finally:
                self.over = True
                self.events, self.sum = self.loop.events, self.network.sum
                self.loop.bury()
                self.network.end()
                self._contexts.clear()

    def client(self, site: str = "") -> Client:
        """Return a client of the servers, or of those of a site."""
        return headgate.connect(f"redis://{site}:6379" if site else self.deployment.url, namespace="sim")


@contextlib.contextmanager
def of_this_world(world: World) -> Iterator[None]:
    """Have all modules of the product take time and chance from a world; nothing is collected meanwhile."""
    loop, chance = world.loop, world.secret
    time = types.SimpleNamespace(
        thread_time=lambda: 0.0,
        monotonic=loop.time,
        time=lambda: DAY + loop.time() - BEGINS + loop.process.ahead,
        time_ns=lambda: round((DAY + loop.time() - BEGINS + loop.process.ahead) * 1e9),
    )
    secrets = types.SimpleNamespace(
        token_hex=lambda size: f"{chance.getrandbits(8 * size):0{2 * size}x}",
        randbelow=chance.randrange,
        token_bytes=chance.randbytes,
    )
    stands_for = {
        "monotonic": time.monotonic, "time": time, "secrets": secrets, "random": chance,
        "socket": types.SimpleNamespace(gethostname=lambda: "host"), "os": types.SimpleNamespace(getpid=lambda: 1),
    }  # fmt: skip
    known = frozenset(sys.modules)
    places: list[tuple[types.ModuleType, str, Any]] = []
    for module, name, what in _places(known):
        places.append((module, name, getattr(module, name)))
        setattr(module, name, stands_for[what])
    maps: Any = importlib.import_module("redis.asyncio.cluster")
    for name, fake in (("random", chance), ("key_slot", slot_of), ("REDIS_CLUSTER_HASH_SLOTS", SLOTS)):
        places.append((maps, name, getattr(maps, name)))
        setattr(maps, name, fake)
    rounds: Any = importlib.import_module("headgate.redis.shared_sweeps")
    phase, rounds._PHASE = rounds._PHASE, chance.random()
    collects = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is here is no garbage of this world
    logging.disable(logging.CRITICAL)
    try:
        # Whoever is cut off or ends as it connects leaves the connection to its end to close.
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            yield
        late = _product(sys.modules.keys() - known)
        assert not late, f"{late} came during the history and know the real time: import them here"
    finally:
        for module, name, real in places:
            setattr(module, name, real)
        rounds._PHASE = phase
        logging.disable(logging.NOTSET)
        if collects:
            gc.enable()


def _product(names: Iterable[str]) -> list[types.ModuleType]:
    return [sys.modules[name] for name in sorted(names) if name.partition(".")[0] in PRODUCT]


@functools.cache
def _places(known: frozenset[str]) -> list[tuple[types.ModuleType, str, str]]:
    """Return where modules have what a world has of its own, and what that is."""
    import os
    import random
    import secrets
    import socket
    import time
    import uuid

    modules = (time, os, uuid, secrets, random, socket)
    real = {id(getattr(module, name)) for module in modules for name in NEVER_ALONE if hasattr(module, name)}
    strays = [
        f"{one.__name__}.{name}" for one in _product(known) for name, what in vars(one).items() if id(what) in real
    ]
    assert not strays, (
        f"{strays} would be those of the real world: import the module that has them, which worlds replace"
    )
    own = {id(time): "time", id(time.monotonic): "monotonic", id(secrets): "secrets", id(random): "random"}
    own[id(socket)] = "socket"
    places = [
        (module, name, own[id(real)])
        for module in _product(known)
        for name, real in vars(module).items()
        if id(real) in own
    ]
    return [*places, (sys.modules["headgate.amqp.remote"], "os", "os")]
