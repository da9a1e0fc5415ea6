"""A refill brings a blocked destination what it lacks of its pools.

It takes step after step while somebody there asks. Slices of one destination announce what makes another step worth
while: some of what was lent to one is free, or another is first in line. So whoever waits there looks by itself only
now and then. Nobody announces that of other pools, which are looked at often.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from headgate._util.tasks import stop
from headgate.core.account.ports import Waiting
from headgate.core.names import decode_name, encode_name, is_slice
from headgate.errors import HeadgateError
from headgate.redis.backend import AGAIN, Listener, WakeUps
from headgate.redis.keys import Address, PoolAddress

PATIENCE: Final = 2.75
"""Seconds for which one refill goes on, unless the account that is blocked asks again meanwhile: which it does before,
from when it is first in line on."""
ALL: Final = ""
"""Among the members that were asked for what they do not use: all of them were, once."""
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.2
_SLICES_PAUSE: Final = 0.04
"""The same where slices of one destination share its limit: what is free at one is to be as good as free at all."""
_FIRST_LOOKS: Final = 0.5
"""The same where slices say nothing meanwhile: two such looks end what the dead hold at them."""
_OTHERS_LOOK: Final = 1.0
"""The same for those behind the first in line, who would lose their places after three seconds."""

Tell = Callable[[str, int], None]
"""A callback for a pool's name and the most bytes that the destination can ever have of it."""
Step = Callable[[Address, str, Tell, set[str]], Awaitable[bool]]
"""Takes every step that may bring a destination what it lacks of one pool; returns whether it lacks nothing."""


def first() -> Waiting:
    """Return that somebody is first in line, whom nobody can ask whether that is so still."""
    return "first"


class Refills:
    """The refills of one client, one task for each destination.

    Args:
        namespace: the client's.
        wake_ups: bring what slices say; None where nothing does.
        step: takes the steps.
        places: of members in the lines of pools, as was heard last.
    """

    def __init__(
        self, namespace: str, wake_ups: WakeUps | None, step: Step, places: dict[tuple[str, str], int]
    ) -> None:
        self._namespace, self._wake_ups, self._step, self._places = namespace, wake_ups, step, places
        self._tasks: set[asyncio.Task[None]] = set()
        self._until: dict[str, float] = {}  # of the destinations that are being refilled
        self._names: dict[str, str] = {}  # of their pools, in the order in which they are drawn
        self._asking: dict[str, list[Callable[[], None]]] = {}  # who hears that the pools of one were all asked
        self._accounts: dict[str, set[Callable[[], Waiting]]] = {}  # those that asked for one
        self._news: dict[str, asyncio.Event] = {}  # member that is being refilled -> whether a step may be worth while
        self._listeners: dict[str, Listener] = {}  # by pools of slices
        self._hears = set[str]()  # those pools of which all that is announced comes here by now

    def begin(
        self, address: Address, names: str, tell: Tell, asked: Callable[[], None] | None,
        waiting: Callable[[], Waiting] = first,
    ) -> bool:  # fmt: skip
        """Refill a destination, or go on with that; returns whether it begins, or with other pools."""
        if asked is not None:
            self._asking.setdefault(address.key, []).append(asked)
        if not names:
            self._tell_asked(address.key)
            return False
        before = self._names.get(address.key)
        if before is None or set(before.split()) <= set(names.split()):  # a node is asked for one of them at a time
            self._names[address.key] = names
        self._prolong(address.key)
        self._accounts.setdefault(address.key, set()).add(waiting)
        if before is not None:
            self._stir(encode_name(address.name))
        else:
            self._do(self._refill(address, tell), f"headgate pools of {address.name}")
        return before != self._names[address.key]

    def goes_on(self, key: str) -> None:
        """Go on with a refill, if there is one: whoever needs all that there is waits for longer."""
        if key in self._until:
            self._prolong(key)

    async def close(self) -> None:
        """Refill nothing any more."""
        for task in tuple(self._tasks):
            await stop(task)

    def _prolong(self, key: str) -> None:
        self._until[key] = asyncio.get_running_loop().time() + PATIENCE

    async def _refill(self, address: Address, tell: Tell) -> None:
        loop, member = asyncio.get_running_loop(), encode_name(address.name)
        gap, asked, news = _FIRST_PAUSE, set[str](), asyncio.Event()
        self._news[member] = news
        try:
            with contextlib.suppress(HeadgateError):  # whoever is still blocked starts the next refill
                if self._is_short(self._names[address.key]):
                    news.set()
                    await self._rest(address, -math.inf, _OTHERS_LOOK)
                while loop.time() < self._until[address.key] and self._is_wanted(address):
                    if begun := len(self._asking.get(address.key, ())):
                        asked.clear()  # who does not wait goes by this round, so it leaves nobody out
                    # In one order, each only when those before it suffice: nobody waits in a circle.
                    for name in self._names[address.key].split():
                        if not await self._step(address, name, tell, asked):
                            break
                    else:
                        if len(self._asking.get(address.key, ())) == begun:
                            return
                    self._tell_asked(address.key, begun)
                    stepped, of_slices = loop.time(), is_slice(decode_name(name))
                    place = self._places.get((member, name), 0)
                    gap = min(2 * gap, _SLICES_PAUSE if of_slices and place else _LONGEST_PAUSE)
                    heard = of_slices and self._is_heard(name)
                    if heard and (place > 1 or ALL in asked or self._waiting(address) == "others"):
                        await self._rest(address, stepped, _FIRST_LOOKS if place == 1 else _OTHERS_LOOK)
                    else:
                        await asyncio.sleep(stepped + gap - loop.time())
                        news.clear()
        finally:
            del self._until[address.key], self._names[address.key], self._news[member], self._accounts[address.key]
            self._tell_asked(address.key)

    async def _rest(self, address: Address, stepped: float, most: float) -> None:
        """Wait until a step is worth while, which is one for all that comes in a moment.

        As a rule what is settled at a slice meanwhile is enough, and whoever is then first in its line sees to the
        rest. Those that do not wait ask at once.
        """
        loop, news = asyncio.get_running_loop(), self._news[encode_name(address.name)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                while True:
                    await news.wait()
                    since = stepped if address.key in self._asking else loop.time()
                    await asyncio.sleep(since + _SLICES_PAUSE - loop.time())
                    news.clear()
                    if self._waiting(address) != "others":
                        return

    def _waiting(self, address: Address) -> Waiting:
        known = {waiting() for waiting in self._accounts[address.key]}
        if "first" in known or address.key in self._asking:
            return "first"
        return "others" if "others" in known else "nobody"

    def _is_wanted(self, address: Address) -> bool:
        """Return whether somebody waits there, or it stands in line for nobody."""
        member, names = encode_name(address.name), self._names[address.key]
        return self._waiting(address) != "nobody" or any((member, name) in self._places for name in names.split())

    def _is_short(self, names: str) -> bool:
        """Return whether slices stand in line, so what is free at others is for them."""
        short = {name for _, name in self._places}
        return all(name in short & self._hears for name in names.split())

    def _tell_asked(self, key: str, most: int | None = None) -> None:
        """Tell those who came before the pools of a destination were asked that they have been."""
        waiting = self._asking.pop(key, [])
        for asked in waiting[:most]:
            asked()
        if most is not None and waiting[most:]:  # those who came since hear after the next round
            self._asking[key] = waiting[most:] + self._asking.get(key, [])

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What slices say.

    def _is_heard(self, name: str) -> bool:
        """Return whether all that slices say of a pool comes here; from the first time on it will."""
        if self._wake_ups is not None and name not in self._listeners:
            self._listeners[name] = partial(self._hear, name)
            self._do(self._listen(name, self._wake_ups), f"headgate pool {decode_name(name)}, hints")
        return name in self._hears

    async def _listen(self, name: str, wake_ups: WakeUps) -> None:
        await wake_ups.subscribe(self._channels(name), self._listeners[name])
        self._hears.add(name)
        for news in self._news.values():  # earlier announcements are lost
            news.set()

    async def hear_only(self, names: set[str]) -> None:
        """Listen no more to what is announced of other pools."""
        for name in self._hears - names:
            if self._wake_ups is not None:
                self._hears.discard(name)
                await self._wake_ups.unsubscribe(self._channels(name), self._listeners.pop(name))

    def _channels(self, name: str) -> tuple[str]:
        return (PoolAddress.of(self._namespace, decode_name(name)).channel,)

    def _hear(self, name: str, words: list[str]) -> None:
        match words:
            case ["first", member]:
                for other in [key for key, place in self._places.items() if key[1] == name and place == 1]:
                    self._places[other] = 2
                if (member, name) in self._places:
                    self._places[member, name] = 1
                    self._stir(member)
            case _:
                for member in tuple(self._news):
                    if words[0] == AGAIN or self._places.get((member, name)) == 1:
                        self._stir(member)

    def _stir(self, member: str) -> None:
        if member in self._news:
            self._news[member].set()
