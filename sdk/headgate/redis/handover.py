"""A server is judged on whether it has all that its predecessor had, from what both report of their replication.

A planned failover has the former master wait until its replica has everything, and then follow it. That one goes on
from where it ended, without being sent all anew, only if the new master has every write that it ever did: else it
would have to forget some. So it is the witness, by its replication ids. A destination that nobody called between two
such failovers was served by a master before the former one, which is known to have handed all on. A slot that moves
takes its keys along from a master that lives and goes on to be one.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import redis.exceptions as rx

from headgate._util.tasks import stop
from headgate.errors import HeadgateError
from headgate.redis.connection import Dial, OtherRunError, ServerConnections

PATIENCE = 1.0
"""Seconds in which the former master must be heard of as a replica; else some of its last writes may be lost."""
_OF_SILENT: Final = 0.3
"""The part of it that is left where a call timed out: a master that is asked to hand over answers all the time."""
_SILENT_FOR: Final = 5.0
"""Seconds after such a call for which that counts."""
_LOOK_EVERY: Final = 0.03
"""Seconds between looks at a promoted master: it tells nobody when its replicas follow."""
_ANSWER_WITHIN: Final = 0.2
_KEEP: Final = 5.0
"""Seconds for which a verdict is that of the calls for other destinations too."""
_MOST_REPLICAS: Final = 16
_MOST_HISTORIES: Final = 64
_LOSSY: Final = b"!"
_STALE: Final = b""
"""The connection is older than the last promotion of its server: call again, over a new one."""
_Known = TypeVar("_Known")
_FAILED: Final = (rx.RedisError, OSError, HeadgateError)


class Handovers:
    """The fate of the runs that served before.

    Args:
        dialer: makes connections to a host and port.
        lanes: those to all servers that are known.
    """

    def __init__(self, dialer: Callable[[str, int], Dial], lanes: Mapping[str, ServerConnections]) -> None:
        self._dialer = dialer
        self._lanes = lanes
        self._histories: dict[bytes, str] = {}
        self._heirs: dict[bytes, bytes] = {}
        """By a run, the one that took over from it with all it had: some destinations were not called in between."""
        self._verdicts: dict[tuple[bytes, bytes], asyncio.Task[bytes]] = {}
        self._expiries: deque[asyncio.TimerHandle] = deque()
        self._silent_until = 0.0

    def note(self, run: bytes, history: str) -> None:
        """Remember the replication id of a run, as a connection to it learned it."""
        _keep(self._histories, run, history)

    def unanswered(self) -> None:
        """Note that a call timed out: some server hangs, or its host is cut off."""
        self._silent_until = asyncio.get_running_loop().time() + _SILENT_FOR

    async def judge(self, lane: ServerConnections, other: OtherRunError) -> bytes:
        """Return what calls say of the run before: that all it had is here, or that some may be lost."""
        pair = other.run, other.before
        if pair not in self._verdicts:
            self._verdicts[pair] = asyncio.create_task(self._find_out(lane, *pair), name="headgate handover")
            self._expiries.append(asyncio.get_running_loop().call_later(_KEEP, self._forget, pair))
        verdict = await asyncio.shield(self._verdicts[pair])
        if verdict == _STALE:
            await lane.drop()
        return verdict

    def _forget(self, pair: tuple[bytes, bytes]) -> None:
        self._expiries.popleft()
        del self._verdicts[pair]

    async def close(self) -> None:
        """Find out nothing more."""
        for expiry in self._expiries:
            expiry.cancel()
        for task in self._verdicts.values():
            await stop(task)

    async def _find_out(self, lane: ServerConnections, run: bytes, before: bytes) -> bytes:
        replicas: dict[tuple[str, int], ServerConnections] = {}
        silent = asyncio.get_running_loop().time() < self._silent_until
        try:
            async with asyncio.timeout(PATIENCE * _OF_SILENT if silent else PATIENCE):
                while True:
                    with contextlib.suppress(*_FAILED):
                        now, report = await lane.replication()
                        if now != run:
                            return _STALE
                        if b"." not in run:
                            return b"<" + before if await self._moved(lane, before) else _LOSSY
                        last = self._last(before, report.get("master_replid2"))
                        if last is None:
                            return _LOSSY
                        if (witness := await self._follows(report, last, replicas)) is not None:
                            if witness:
                                _keep(self._heirs, last, run)
                            return b"<" + before if witness else _LOSSY
                    await asyncio.sleep(_LOOK_EVERY)
        except TimeoutError:
            return _LOSSY
        finally:
            for replica in replicas.values():
                await replica.drop()

    def _last(self, run: bytes, history: str | None) -> bytes | None:
        """Return the run of that history: a run itself, or one that has all it had; None where that is not known."""
        for _ in range(_MOST_HISTORIES):
            if (run.partition(b".")[2].decode() or self._histories.get(run)) == history:
                return run
            if run not in self._heirs:
                break
            run = self._heirs[run]
        return None

    async def _moved(self, lane: ServerConnections, before: bytes) -> bool:
        """Return whether the run before is in charge of other slots: it loses nothing, and its keys were moved whole.

        A server that was ever promoted has keys that came by replication, and cannot tell these from those.
        """
        for other in [one for one in self._lanes.values() if one is not lane]:
            with contextlib.suppress(*_FAILED):
                run, report = await other.replication()
                if run == before and report.get("role") == "master":
                    return True
        return False

    async def _follows(
        self, report: Mapping[str, str], before: bytes, replicas: dict[tuple[str, int], ServerConnections]
    ) -> bool | None:
        """Return whether the run before went on from its end, or was sent all anew; None while it does not follow."""
        process = before.partition(b".")[0]
        listed = [report[f"slave{number}"] for number in range(_MOST_REPLICAS) if f"slave{number}" in report]
        for words in (dict(part.split("=", 1) for part in text.split(",") if "=" in part) for text in listed):
            place = words.get("ip", ""), int(words.get("port", 0))
            replica = replicas.get(place) or ServerConnections(self._dialer(*place))
            replicas[place] = replica
            with contextlib.suppress(*_FAILED):
                async with asyncio.timeout(_ANSWER_WITHIN):
                    run, its = await replica.replication()
                ours, linked = run.partition(b".")[0] == process, its.get("master_link_status") == "up"
                if ours and linked and its["master_replid"] == report["master_replid"]:
                    return its["master_replid2"] == report["master_replid2"]
        return None


def _keep(known: dict[bytes, _Known], run: bytes, what: _Known) -> None:
    """Remember something of a run, and of the latest runs only."""
    known.pop(run, None)
    known[run] = what
    if len(known) > _MOST_HISTORIES:
        del known[next(iter(known))]
