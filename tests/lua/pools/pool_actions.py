"""What may happen around a pool, drawn by Hypothesis, and done."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.lua.pool_world import NAMES, PoolWorld
from tests.support.extent import examples

World = TypeVar("World", bound=PoolWorld)

names = st.sampled_from(NAMES)
sizes = st.integers(1, 90)
ACTIONS = st.one_of(
    st.tuples(st.just("ask"), names, sizes),
    st.tuples(st.just("free"), names),
    st.tuples(st.just("look"), names),
    st.tuples(st.just("step"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("step"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("refill"), names),
    st.tuples(st.just("ask back"), names, sizes, st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, 500, 1100, 4000])),
    st.tuples(st.just("forget"), names),
)
LOSSES = st.one_of(
    ACTIONS,
    ACTIONS,
    st.tuples(st.just("lose"), names),
    st.tuples(st.just("lose pool")),
    st.tuples(st.just("restart"), st.integers(0, 1000)),
    st.tuples(st.just("rebuild")),
)
QUIET = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


async def act(world: PoolWorld, action: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912 - one case an action
    what, *rest = action
    name = list(world.places)[NAMES.index(rest[0]) if rest and rest[0] in NAMES else 0]
    producer, place = world.producers[name], world.places[name]
    match what:
        case "ask":
            await producer.ask(need=producer.held + rest[1])
        case "free":
            answer = await producer.give_back(producer.held)
            if answer.code != "OK":
                producer.start_anew()
        case "look":
            world.mail.append(("draw", (name, await world.look(name)), 0))
        case "step":
            await world.step(rest[0], again=rest[1])
        case "refill":
            await world.run(name)
        case "ask back":
            await world.ask_back(name, rest[1], owe=rest[2])
        case "wait":
            await world.clock(rest[0])
        case "forget":
            epoch = (await world.look(name)).epoch
            await world.store.forget(world.pool, name, epoch - 1)  # what lived before this one is gone
        case "lose":
            await world.clock(1)
            await world.server.forget(place.address, "s")
            await world.make(place)
            producer.start_anew()
            producer.epoch = 0
        case "lose pool":
            await world.clock(50)  # an epoch is a moment, so several began in one only where a clock was set back
            await world.server.command(world.pool.keys[0], "DEL", *world.pool.keys)
            await world.store.set(world.pool, world.settings, mode="recover", ttl_ms=1000)
        case "restart":
            await world.clock(1)
            world.server.run = f"run {rest[0]}".encode()
        case "rebuild":
            await world.rebuild()


async def live(
    world: World,
    actions: list[tuple[Any, ...]],
    do: Callable[[World, tuple[Any, ...]], Awaitable[None]],
    ends: Callable[[World], Awaitable[None]] | None = None,
) -> None:
    """Do all that happens in a world, and check it after each; ``ends`` is what has to follow."""
    try:
        await world.open()
        for action in actions:
            await do(world, action)
            await world.check()
        if ends is not None:
            await ends(world)
    finally:
        world.server.run = None
        await world.close()
