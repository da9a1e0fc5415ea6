"""Settings of the destinations in a deadlock decide what is done about it."""

import json
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from headgate.client import Client
from headgate.core.deadlock import Deadlock, Step
from headgate.core.names import slice_name
from headgate.explain.wait_edges import waiter
from headgate.redis.keys import Address
from headgate.redis.stores.notes import Tie
from headgate_coordinator.deadlock.graph import WaitGraph
from headgate_coordinator.deadlock.tickets import give_ticket

DEFAULT: Final = "alert"
"""The setting of a destination that has none."""
STRONGEST: Final = ("ticket", "fail", "alert", "none")
"""Of several destinations in a cycle one is enough; nothing fails where a ticket may do."""
_SENDERS: Final = ("session", "link")
_ABOVE: Final = {
    "ABOVE": "something is above the limit there already",
    "REFUSED": "more than the limit alone holds it up",
}


def action_of(deadlock: Deadlock, sight: WaitGraph) -> str:
    """Return the strongest action that the destinations where somebody waits for room say; those of limits say none."""
    settings = {_setting(step, sight) for step in _sends(deadlock)}
    return next((word for word in STRONGEST if word in settings), DEFAULT)


async def resolve(client: Client, deadlock: Deadlock, action: str, sight: WaitGraph) -> str:
    """Do what is to be done; returns what was, in a sentence, empty for nothing.

    Raises:
        CoordinatorUnavailable: Redis does not answer; it is tried again with the next look.
    """
    done = ""
    if action == "ticket":
        given, done = await _give_ticket(client, deadlock, sight)
        if given:
            return done
    if action in ("ticket", "fail"):
        return await _fail_newest(client, deadlock, sight) or done
    return done


async def _give_ticket(client: Client, deadlock: Deadlock, sight: WaitGraph) -> tuple[bool, str]:
    """Let one message go above the limit; returns whether one does."""
    refused = ""
    for step in _sends(deadlock):
        if _setting(step, sight) != "ticket":
            continue
        session = _session(step, sight)
        for address, since in _waits(client, step.what.name, session, sight):
            code = await give_ticket(client.parts.pools, address, session, since=since)
            if code == "OK":
                return True, f"a message of {step.who} went into {step.what} above its limit"
            if code in _ABOVE:
                refused = f"no message may go into {step.what} above its limit: {_ABOVE[code]}"
    return False, refused


async def _fail_newest(client: Client, deadlock: Deadlock, sight: WaitGraph) -> str:
    """Fail the newest of the sends that wait where the setting says ``fail``."""
    candidates = [(tie, step) for tie, step in _ties(deadlock, sight) if _setting(step, sight) == "fail"]
    if not candidates:
        return ""
    tie, step = min(candidates, key=lambda one: (one[0].waited_ms, one[0].name))
    text = quote(json.dumps(deadlock.as_dict(), separators=(",", ":")), safe="")
    codes = set[str]()
    for address, since in _waits(client, tie.at, tie.session, sight):
        codes.add(await client.store.resolve(address, tie.session, since=since, mode="tell", wait=tie.wait, text=text))
    return f"a send of {step.who} to {step.what} was made to fail" if "OK" in codes else ""


def _sends(deadlock: Deadlock) -> Iterator[Step]:
    """Yield the steps in which somebody waits for room."""
    return (step for step in deadlock.steps if step.what.kind in ("queue", "topic") and step.who.kind in _SENDERS)


def _ties(deadlock: Deadlock, sight: WaitGraph) -> Iterator[tuple[Tie, Step]]:
    """Yield the sends of sessions that hold the cycle up, and their steps."""
    for before, step in zip((deadlock.steps[-1], *deadlock.steps), deadlock.steps, strict=False):
        if step.who.kind == "session" and step.what.kind in ("queue", "topic"):
            for tie in sight.ties:
                if waiter(tie) == step.who and tie.destination == before.who.name:
                    yield tie, step


def _setting(step: Step, sight: WaitGraph) -> str:
    return sight.snapshots[step.what.name].fields.get("deadlock") or DEFAULT


def _session(step: Step, sight: WaitGraph) -> str:
    """Return the id under which who waits is in line."""
    session = next(tie.session for tie in sight.ties if waiter(tie) == step.who)
    return sight.snapshots[step.what.name].in_line(session) or session


def _waits(client: Client, name: str, session: str, sight: WaitGraph) -> Iterator[tuple[Address, int]]:
    """Yield where a session may wait at a destination, and since when: records of waits do not name their slices."""
    snapshot = sight.snapshots[name]
    sinces = {int(record["since"]) for waiter, record in snapshot.waiters if waiter == session}
    for number in range(int(snapshot.fields.get("sliced") or 1)):
        for since in sinces:
            yield Address.of(client.namespace, slice_name(name, number)), since
