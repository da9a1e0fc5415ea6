"""A pool over sites has a script at each end, and an answer that one end leaves for the other."""

import time
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.errors import CoordinatorUnavailable, HeadgateError
from headgate.redis.backend import Backend
from headgate.redis.keys import PoolAddress
from headgate.redis.replies import record
from headgate.redis.scripts import script
from headgate.redis.stores.pools import UNLIMITED, Share, served_of

SILENT: Final = 5.0
"""Seconds after which a site that was heard of counts as cut off; it is heard of every second."""
MOST_LETTER: Final = 400
"""Bytes of a letter; a longer one is none."""


_CODES: Final = ("OK", "SAME", "STALE", "AHEAD")


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter holds the answer of a pool to a site with a part in it; see ``lua/pool_site.lua``.

    Attributes:
        text: as it stands there.
        code: ``OK``; ``STALE`` where a later pool of that site reported, ``AHEAD`` where it has heard of a later one.
        epoch: of the site's pool, which it is for.
        pool: epoch of the pool that it is from.
        granted: bytes granted to the site so far.
        returned: the same of what came back.
        most: bytes that the site can ever have.
        lacks: bytes that others lack there.
        owed: those of them that the site has above its level.
        least: bytes that nobody takes from the site; older homes say none.
    """

    text: str = ""
    code: str = ""
    epoch: int = 0
    pool: int = 0
    granted: int = 0
    returned: int = 0
    most: int = 0
    lacks: int = 0
    owed: int = 0
    least: int = 0

    @classmethod
    def read(cls, text: bytes | None) -> "Letter":
        """Return what a site found; an empty one where that is nothing, or no answer."""
        if not text or len(text) > MOST_LETTER:
            return cls()
        try:
            words = {"least": "0"} | record(text)
            numbers = {name: int(words[name]) for name in cls.__slots__ if name not in ("text", "code")}
            sound = words["code"] in _CODES and all(0 <= number < UNLIMITED for number in numbers.values())
            return cls(text.decode(), words["code"], **numbers) if sound else cls()
        except (ValueError, KeyError, IndexError):
            return cls()


@dataclass(frozen=True, slots=True)
class Held:
    """A pool's record of what it holds of one at another site; see ``lua/pool_share.lua``.

    Attributes:
        code: ``OK``, ``EPOCH``, ``CLOSING`` or ``UNKNOWN``.
        epoch: of the pool.
        there: of the other one, as far as it has heard.
        granted: total bytes.
        returned: the same of what went back.
        need: the granted total with which the first in line could go.
        free: bytes that no member has.
        owed: bytes that members have to give back.
        of: the other site and its pool there, as ``site/pool``.
        served: members that were granted something.
    """

    code: str
    epoch: int = 0
    there: int = 0
    granted: int = 0
    returned: int = 0
    need: int = 0
    free: int = 0
    owed: int = 0
    of: str = ""
    served: tuple[Share, ...] = ()

    @property
    def lacks(self) -> int:
        """Bytes that are missing for the first in line."""
        return self.need - self.granted

    @property
    def report(self) -> str:
        """The text that tells the other site of it, without the moment."""
        return f"epoch={self.epoch} pool={self.there} granted={self.granted} returned={self.returned} need={self.need}"


def since(heard_ms: int, now_ms: int) -> float:
    """Return for how many seconds nothing was heard; by a clock that was set back since, by how much it was.

    Else what is cut off meanwhile would count as heard of until the clock has caught up.
    """
    return abs(now_ms - heard_ms) / 1000


async def now_ms(server: Backend, key: bytes) -> int:
    """Return the time of the server that has a key; this host's where it does not say."""
    try:
        seconds, micros = await server.command(key, "TIME")
    except CoordinatorUnavailable as error:
        if not error.answered:
            raise
    except HeadgateError:  # not everybody may ask
        pass
    else:
        return int(seconds) * 1000 + int(micros) // 1000
    return time.time_ns() // 1_000_000


class PoolSiteStore:
    """Both ends of a pool over sites; every method is one call."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def share(
        self, pool: PoolAddress, letter: Letter = Letter(), *, of: str = "", idle: int = 0, trouble: str | None = None
    ) -> Held:
        """Tell a pool what one at another site has on record for it, and why no more; without either only look."""
        op = script("pool_share")
        values = {
            "run_id": None, "of": of if letter.text else "", "epoch": letter.epoch, "there": letter.pool,
            "granted": letter.granted, "returned": letter.returned, "most": letter.most, "lacks": letter.lacks,
            "owed": letter.owed, "idle": idle,
            "whose": "" if trouble is None else of, "trouble": trouble or "",
        }  # fmt: skip
        reply = await self.server.call(op, pool.keys, op.argv(values))
        if len(reply) == 1:
            return Held(reply[0].decode())
        epoch, there, granted, returned, need, free, owed = (int(n) for n in reply[1:8])
        code, of, served = reply[0].decode(), reply[8].decode(), served_of(reply[9])
        return Held(code, epoch, there, granted, returned, need, free, owed, of, served)

    async def account(
        self, pool: PoolAddress, site: str, *, mode: Literal["account", "forget"] = "account"
    ) -> tuple[str, int, int, int, tuple[Share, ...]]:
        """Take in a site's report; returns code, the pool's epoch, bytes it holds, its place, and who was served."""
        op = script("pool_site")
        values: dict[str, Any] = {"run_id": None, "site": site, "mode": mode}
        reply = await self.server.call(op, (*pool.keys, pool.site_key(site)), op.argv(values))
        return reply[0].decode(), int(reply[1]), int(reply[2]), int(reply[3]), served_of(reply[4])
