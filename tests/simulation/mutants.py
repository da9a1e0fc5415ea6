"""Rules broken on purpose, one at a time: the simulation finds each, or it would find nothing of the kind."""

import contextlib
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from headgate.core.account.machine import Account
from headgate.core.limits.spread import Spread
from headgate.core.outbox import Outbox, Outgoing
from headgate.core.sharing import Share
from headgate.redis.handover import Handovers
from headgate.redis.shared_sweeps import SweepRounds
from headgate.redis.stores.rates import Hand, RateStore
from headgate_coordinator.links.forwarder import Forwarder
from tests.simulation.server import Rewrite


@dataclass(frozen=True)
class Mutant:
    """A broken rule.

    Attributes:
        rule: what it breaks.
        promise: the one that the oracle is to find broken.
        seed: the first whose history shows it, or one before that. A change of the product moves it: one that is dozens
            before it costs more than all others together.
        script: the change of a script, for a rule of theirs.
        client: applies the change of the client, or of nodes, for a rule of theirs.
        scene: that shows it.
    """

    rule: str
    promise: str
    seed: int
    script: Rewrite | None = None
    client: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    scene: str = "alone"


def _in(name: str, *changes: tuple[str, str]) -> Rewrite:
    """Return what makes changes in one script."""

    def rewrite(script: str, source: str) -> str:
        if script == name:
            for old, new in changes:
                assert source.count(old) == 1, f"{name}.lua has not {old!r}"
                source = source.replace(old, new)
        return source

    return rewrite


def _everywhere(old: str, new: str) -> Rewrite:
    """Return what makes a change in all scripts that have a text of a library."""

    def rewrite(_: str, source: str) -> str:
        return source.replace(old, new)

    return rewrite


def _believes_every_successor() -> AbstractContextManager[Any]:
    """Have a server that was promoted count as one that has all that the former one had."""

    async def find_out(_: Handovers, _lane: Any, _run: bytes, before: bytes) -> bytes:
        return b"<" + before

    return mock.patch.object(Handovers, "_find_out", find_out)


def _releases_what_is_read() -> AbstractContextManager[Any]:
    """Have a link's source let go of what was read, before the target has it."""
    read = Forwarder._read

    def read_and_released(forwarder: Forwarder, answer: Any, now: float, *, asked: bool) -> None:
        read(forwarder, answer, now, asked=asked)
        forwarder.durable = max(forwarder.durable, forwarder._after)

    return mock.patch.object(Forwarder, "_read", read_and_released)


def _numbers_anew() -> AbstractContextManager[Any]:
    """Have what is sent again, for its answer was lost, go under a number of its own."""
    missed = Account.missed

    def missed_and_numbered(account: Account, now: float, *, gives_up: bool) -> None:
        missed(account, now, gives_up=gives_up)
        if flight := account.outbox.flight:
            account.outbox.flight = replace(flight, seq=flight.seq + len(flight.items))

    return mock.patch.object(Account, "missed", missed_and_numbered)


def _goes_by_who_sends() -> AbstractContextManager[Any]:
    """Have a message go to a slice of its sender's, and not of its value."""

    def slice_of(spread: Spread, _: Any, producer: str) -> int:
        return zlib.crc32(producer.encode()) % spread.slices

    return mock.patch.object(Spread, "slice_of", slice_of)


def _speaks_for_slices() -> AbstractContextManager[Any]:
    """Have a client say that a slice gave back what it has in hand of a rate, and not ask the slice."""
    take = RateStore.take

    async def take_nothing_back(store: RateStore, *args: Any, back: bool = False, **totals: Any) -> Hand:
        hand = await take(store, *args, **totals)
        return replace(hand, back=hand.granted - hand.spent) if back else hand

    return mock.patch.object(RateStore, "take", take_nothing_back)


def _asks_a_server_without_places() -> AbstractContextManager[Any]:
    """Have rounds of those who ask again end with an error, of which nobody hears."""
    return mock.patch.object(SweepRounds, "_begin", SweepRounds.takes_turn)


def _keeps_what_it_was_woken_for() -> AbstractContextManager[Any]:
    """Have a consumer that was woken, and has no room, say nothing of it."""
    return mock.patch.object(Share, "passes_on", return_value=False)


def _passes_those_that_wait() -> AbstractContextManager[Any]:
    """Have a message for which there is credit go before those that wait, or are being written to a store."""
    add = Outbox.add

    def add_before(outbox: Outbox, item: Outgoing) -> bool:
        kept = outbox.waiting, outbox.spooling
        outbox.waiting, outbox.spooling = deque(), []
        paid = add(outbox, item)
        outbox.waiting, outbox.spooling = kept
        if not paid:
            outbox.waiting.append(item)
        return paid

    return mock.patch.object(Outbox, "add", add_before)


MUTANTS: Final = (
    Mutant(
        "a batch that comes again is known by its number", "P5", 15,
        script=_in("publish", ("if seq == batch then", "if false then"), ("elseif seq <= last", "elseif false")),
    ),
    Mutant(
        "what a settlement frees goes to the first in line at once", "P6", 1,
        script=_in("settle", ("if freed > 0 or reaped or d.expired then", "if reaped or d.expired then")),
    ),
    Mutant(
        "a link's target keeps how far it got", "P5", 0, scene="nodes",
        script=_in("link_commit", ("or puts.mark\nsave_target", "or l.mark\nsave_target")),
    ),
    Mutant(
        "a link's source keeps what its target does not have yet", "P3", 1, scene="nodes", client=_releases_what_is_read
    ),
    Mutant("what is sent again has the number that it had", "P5", 32, client=_numbers_anew),
    Mutant(
        "a replica that takes over may lack what its master did last", "P6", 10, scene="sentinels",
        client=_believes_every_successor,
    ),
    Mutant(
        "what is claimed goes beside what a lost call has brought back, or not at all", "P1", 16, scene="sentinels",
        script=_everywhere("return after - before <= math.max(0, free) and", "return true or"),
    ),
    Mutant(
        "slices use what they hold of the one limit", "P1", 0, scene="cluster",
        script=_everywhere("math.min(whole_bytes(), d.slice_bytes)", "whole_bytes()"),
    ),
    Mutant(
        "what was applied is in force", "P12", 1,
        script=_in("apply", ("~= value then", "~= value and (code == 'CREATED' or field ~= 'limit_bytes') then")),
    ),
    Mutant(
        "a site uses what it holds of the one limit", "P1", 0, scene="sites",
        script=_everywhere("math.min(p.own, share_left(s, p.part_of, p.epoch))", "p.own"),
    ),
    Mutant(
        "a site has its least for itself", "P1", 2, scene="sites",
        script=_everywhere("named.most, named.weight, named.least", "named.most, named.weight, 0"),
    ),
    Mutant(
        "a site has given back what it says, and no more", "P1", 1, scene="sites",
        script=_in("pool_site", ("math.min(math.max(m.returned, returned), m.granted)", "m.granted")),
    ),
    Mutant(
        "messages of a value go to one slice, whoever sends them", "order", 33, scene="cluster",
        client=_goes_by_who_sends,
    ),
    Mutant(
        "what a key holds at another slice counts at its own", "P1", 7, scene="limiters of a cluster",
        script=_in("join", ("= (levels.held[name] or 0) + value", "= levels.held[name] or 0")),
    ),
    Mutant(
        "what a key owes of a rate goes along with it", "P8", 36, scene="limiters of a cluster",
        script=_in("join", ("math.max(tat, now_us + value)", "tat")),
    ),
    Mutant(
        "nobody is let in at a limiter before those who wait", "P7", 53, scene="limiters of a cluster",
        script=_in("admit", ("(d.blocked == 0 or may_pass(key, amounts))", "true")),
    ),
    Mutant(
        "the best band that waits at a limiter goes first", "P7", 71, scene="limiters of a cluster",
        script=_everywhere("return found or bands[1], found ~= nil", "return found or bands[#bands], found ~= nil"),
    ),
    Mutant(
        "what is kept of a limiter for the best band is for that alone", "P7", 21, scene="limiters of a cluster",
        script=_everywhere("most = upto + 0 < band and", "most = upto + 0 > band and"),
    ),
    Mutant(
        "what other slices have in hand of a rate is not lent", "P8", 0, scene="rates of a cluster",
        script=_in("rate_lend", ("left = left - has\n", "")),
    ),
    Mutant(
        "a slice itself gives back what it has in hand of a rate", "P8", 16, scene="rates of a cluster",
        client=_speaks_for_slices,
    ),
    Mutant(
        "for a message above the limit its slice borrows while no other has anything", "P1", 0,
        scene="large ones of a cluster",
        script=_everywhere("(lacks_all(m) and p.granted == m.granted - m.returned)", "lacks_all(m)"),
    ),
    Mutant(
        "a message above the limit goes once nothing is stored at any slice", "P6", 16, scene="large ones of a cluster",
        script=_everywhere(" or (lacks_all(m) and p.granted == m.granted - m.returned)", ""),
    ),
    Mutant("no callback fails", "error", 0, client=_asks_a_server_without_places),
    Mutant(
        "a full queue resumes once pending at all slices is down to its level", "level", 0, scene="levels of a cluster",
        script=_everywhere("if is_full() and not is_above_resume(caller, own) then", "if is_full() then"),
    ),
    Mutant(
        "a slice that heard that the pool is full grants nothing", "level", 0, scene="levels of a cluster",
        script=_everywhere("read.shut = math.max(read.bytes_full % 2, read.messages_full % 2)", "read.shut = 0"),
    ),
    Mutant(
        "a full queue resumes at its level, and not later", "P6", 7, scene="levels of a cluster",
        script=_everywhere("if is_full() and not is_above_resume(caller, own) then", "if false then"),
    ),
    Mutant(
        "who waits for a message is woken as one comes", "idle", 0,
        script=_in("publish", ("wake_hungry(count)", "")),
    ),
    Mutant(
        "a consumer without room has another one woken", "idle", 68, scene="stores of a cluster",
        client=_keeps_what_it_was_woken_for,
    ),
    Mutant("what is sent later goes after those that wait", "order", 8, client=_passes_those_that_wait),
    Mutant(
        "a pool of slices lends one ticket", "P1", 8, scene="tickets of a cluster",
        script=_in("pool", ("lacks <= p.limit and p.granted <= p.limit and", "lacks <= p.limit and")),
    ),
    Mutant(
        "slices are fetched from as much as they have", "P7", 2, scene="cluster",
        script=_everywhere("return left > 0 and beside", "return false and beside"),
    ),
    Mutant(
        "senders of all slices that wait for a rate stand in one line", "P7", 52, scene="rates of a cluster",
        script=_in("rate_lend", ("one.turn < turn or", "one.turn > turn or")),
    ),
)  # fmt: skip
