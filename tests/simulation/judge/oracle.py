"""An oracle of promises: it hears of each script and of each call of an application, and counts for itself."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from tests.simulation.judge.deliveries import Deliveries, Delivery
from tests.simulation.judge.idling import Idling
from tests.simulation.judge.lease import TTL
from tests.simulation.judge.order import Order
from tests.simulation.judge.sight import ASKS, Sight, credit_in, messages_in_hand, renews, size_of, tags_of
from tests.simulation.judge.tokens import token_in
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.server import AGAIN, Call

POLL: Final = 2.0
"""Seconds for which the end of a pause may stay unnoticed, which no script brings."""
DRAWS: Final = 6.0
"""Seconds for which one who is first in line at a slice may wait for what the others have and do not use."""
GHOSTS: Final = 3.0
"""Seconds after the last call at a server that was in charge no more, in which an application may hear of it."""
IN_FORCE: Final = 1.0
"""Seconds after which what was applied holds everywhere."""
LASTS: Final = (0.89, 0.29, 0.0)
"""The least part of its TTL that a lease lasts, as the clock was set not at all, once, or more often of late."""
COUNTED: Final = (b"pending_bytes", b"pending_messages", b"leased_bytes", b"blocked")
LATE: Final = 3.0
"""Seconds by which a call may end after its timeout: one call to Redis has two, and a connection one."""

_State = tuple[set[tuple[str, str]], dict[str, Sight], dict[tuple[str, str], float], set[Delivery]]


@cache
def whole(name: str) -> str:
    """Return the key of a destination without which slice of it this is."""
    return name.partition("%")[0].rstrip("}")


@cache
def place_of(name: str) -> str:
    """Return the destination that this is, or a slice of it."""
    return whole(name).rpartition("/")[2]


class Oracle:
    """What must hold, and what does not: ``broken`` are promises with what was seen, the first of them first."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop, self.idling, self.order, self.deliveries = loop, Idling(loop), Order(), Deliveries()
        self.broken: list[str] = []
        self.over = loop.create_future()
        """Done as the first promise is broken."""
        self.last: dict[str, Sight] = {}
        self.stored: set[tuple[str, str]] = set()
        """Destinations and tokens that were ever stored there, as far as the server remembers."""
        self.lost: set[tuple[str, str]] = set()
        self.receipts: dict[str, str] = {}
        """Token -> the process that has one."""
        self.received: set[str] = set()
        self.accepted: set[str] = set()
        self.losses: dict[str, int] = defaultdict(int)
        self.owners: dict[str, Process] = {}
        """Session -> the process that has it."""
        self.died: dict[str, float] = {}
        self.heard: dict[tuple[str, str], float] = {}
        """Destination and session -> when a call of it was carried out last."""
        self._ghosts: set[tuple[str, str]] = set()
        """Likewise those that a copy of a call put in line, and that have not asked since: they may wait no more."""
        self.disturbed = 0.0
        self.hindered = 0.0
        """Until when somebody is not answered, though nothing fails where the state is."""
        self._jumps: list[float] = []
        self._set_back = 0.0
        """Seconds by which the clock of leases was set back: so much longer they last where nobody waits."""
        self._waits: dict[str, float] = {}
        """Destination -> since when somebody has waited there who lives."""
        self._idle: dict[str, float] = {}
        """Destination -> since when there is room for the head of its line."""
        self._kept: dict[int, list[_State]] = {}
        self._back: dict[str, Sight] = {}
        """Destination -> what a lost state brought back, whose bytes others may have by now."""
        self._back_at: dict[str, float] = {}
        """Token -> when a lost state brought its message back, or forgot it."""
        self._former: dict[str, Sight] = {}
        """Destination -> what lay there at the server that was in charge before, which may go on with that."""
        self._ghost_at = 0.0
        self._in_vain: set[str] = set()
        """Places where something is lost of what was applied last."""
        self._highest: dict[str, float] = defaultdict(float)
        """Destination with slices -> the highest limit that it had."""
        self.lost_writes = False
        self.shared: dict[str, int] = {}
        """Queues that share a limit, over sites, and that limit."""
        self.own: dict[str, int] = {}
        """Queues that may have less of that, for the rest is the least of another site."""
        self._applying: dict[str, int] = defaultdict(int)
        self._applied: dict[str, tuple[float, float]] = {}
        """Place -> the limit that was applied last, and when that was done."""

    def breaks(self, promise: str, what: str) -> None:
        """Note that a promise is broken."""
        self.broken.append(f"{promise}: {what}")
        if not self.over.done():
            self.over.set_result(None)

    # What the server does.

    def kept(self, slot: int, *, anew: bool = True) -> None:
        """Note that the state is kept as it is; of those since the first that is kept anew, one comes back."""
        states = [] if anew else self._kept[slot]
        state = set(self.stored), dict(self.last), dict(self.heard), set(self.deliveries.known)
        self._kept[slot] = [*states, state]

    def restored(self, slot: int, lies_there: Callable[[str], bool], lost: int = 0) -> None:
        """Note that it is back as it was kept ``lost`` states ago: what came since is lost, what went is there again.

        So it is with destinations that lie there; all others are as they were.
        """
        stored, last, heard, delivered = self._kept[slot][-1 - lost]
        self.lost_writes = True
        self._applied.clear()
        self._in_vain |= {place for place, calls in self._applying.items() if calls}
        there = {name for name in self.last.keys() | last.keys() if lies_there(name)}
        self.deliveries.restored(there, delivered)
        for name in there & last.keys():
            self._former[name] = self.last.get(name, Sight())
            still = self._back.get(name, Sight()).left_in(last[name])  # of a loss before that one
            self._back[name] = last[name].beyond(self._former[name]).joined(still.stored)
        self.last = {name: sight for name, sight in self.last.items() if name not in there}
        self.last |= {name: last[name] for name in there & last.keys()}
        others = {one: at for one, at in self.heard.items() if one[0] not in there}
        self.heard = others | {one: at for one, at in heard.items() if one[0] in there}
        back = {one for one in stored if one[0] in there}
        gone = {one for one in self.stored if one[0] in there} - back
        self.lost |= gone
        self.stored = self.stored - gone | back
        again = {token for name in there & last.keys() for token in self._back[name].stored.values()}
        again |= {token for _, token in gone}  # and a late copy of the call may store it once more
        self._back_at |= dict.fromkeys(again, self.loop.now)
        self.accepted -= again

    def clock_set(self, ahead: float) -> None:
        """Note that the clocks of all servers were set."""
        self.disturbed = max(self.disturbed, self.loop.now)
        self._jumps.append(self.loop.now)
        self._set_back += max(0.0, -ahead)
        self.idling.set_back(max(0.0, -ahead))

    def saw(self, call: Call) -> None:
        """Judge one script."""
        tags = tags_of(tuple(call.words[1 : 1 + int(call.words[0])]))
        if len(tags) != 1:
            self.breaks("P9", f"{call.script} has keys of several slots: {tags}")
        if not call.seen:
            return
        name = call.words[1].decode()
        if not call.seen[0]:
            if not call.superseded:
                self.last.pop(name, None)
            return
        if call.superseded:  # what it does is lost, whatever it answers
            self._at_ghost(name, call)
            return
        if renews(call):
            words = {word.partition(b".")[0].decode(errors="replace") for word in call.words[1 + int(call.words[0]) :]}
            self._called(call, {(name, session) for session in self.owners if session in words})
        before, total_before = self.last.get(name), self._total(name)
        sight = self.last[name] = self._read(name, call)
        if idle := self.idling.saw(place_of(name), name, sight):
            self.breaks("idle", idle)
        self._stored(name, before, sight)
        self.deliveries.saw(name, call, sight.stored)
        if before is None:
            return
        self._limit(name, call, before, sight, total_before)
        self._leases(name, call, before, sight)
        if before.epoch == sight.epoch:  # else what is claimed is no grant
            self._line(name, call, before, sight)

    def _called(self, call: Call, called: set[tuple[str, str]]) -> None:
        self.heard |= dict.fromkeys(called, self.loop.now)
        if call.script in ASKS:
            joined = {(name, sid) for name, sid in called if sid not in self.last.get(name, Sight()).line}
            self._ghosts = self._ghosts | joined if call.caller.endswith(AGAIN) else self._ghosts - called

    def _at_ghost(self, name: str, call: Call) -> None:
        """Note a script at a server that is in charge no more: what it settles is there again, what it sets is not."""
        self._ghost_at = self.loop.now
        messages = call.seen[3] if len(call.seen) > 3 else ()  # a limiter has none
        there = {at: self._token(name, entry[1]) for at, entry in messages}
        self.lost |= {(name, token) for token in there.values()} - self.stored
        self.deliveries.saw(name, call, there)
        former, now = self._former.get(name, Sight()).stored, self.last.get(name, Sight()).stored
        settled = {at: token for at, token in former.items() if at not in there and at in now}
        self._back[name] = self._back.get(name, Sight()).joined(settled)
        if call.script == "apply":
            self._in_vain.add(place_of(name))

    def _limit(self, name: str, call: Call, before: Sight, sight: Sight, total_before: int) -> None:
        """Judge that no more is taken than a limit, which is what was applied last."""
        most: float
        total, most = sight.total, max(sight.limit, before.total)  # what is held of a limit that was lowered stays
        if sight.sliced:
            # Where the limit was lowered, slices use what they hold of the one before.
            highest = self._highest[whole(name)] = max(self._highest[whole(name)], sight.limit)
            total = self._total(name)
            most = max(highest + self._brought_back(name, sight), total_before)
        if total > most and not self.may_be_above(name):
            self.breaks("P1", f"{call.script} left {total} bytes pending and leased of {sight.limit:.0f} at {name}")
        if limit := self.shared.get(place_of(name), 0):
            self._over_sites(name, call, before, sight, limit)
        applied, since = self._applied.get(place_of(name), (sight.limit, self.loop.now))
        if sight.limit != applied and self.loop.now > max(since, self.disturbed) + IN_FORCE:
            self.breaks("P12", f"{call.script} found {sight.limit:.0f} at {name}, where {applied:.0f} was applied")

    def _over_sites(self, name: str, call: Call, before: Sight, sight: Sight, limit: int) -> None:
        """Judge that queues at several sites take no more than the one limit."""
        if name in self._back:
            self._back[name] = self._back[name].left_in(sight)
        total = sum(one.total for other, one in self.last.items() if place_of(other) in self.shared)
        most = max(limit + sum(back.total for back in self._back.values()), total - sight.total + before.total)
        if total > most:
            self.breaks("P1", f"{call.script} left {total} bytes of {limit} at the sites together")
        own, back = self.own.get(place_of(name), limit), self._back[name].total if name in self._back else 0
        if sight.total > max(own + back, before.total):
            self.breaks(
                "P1", f"{call.script} left {sight.total} bytes at {name}, where but {own} are not another's least"
            )

    def _brought_back(self, name: str, sight: Sight) -> int:
        """Return the bytes that a destination with slices may have above its limit: one has again what was gone."""
        if name in self._back:
            self._back[name] = self._back[name].left_in(sight)
        return sum(back.total for one, back in self._back.items() if whole(one) == whole(name))

    def _total(self, name: str) -> int:
        """Return what is pending and leased at all slices of a destination."""
        return sum(sight.total for sight in self._parts(name))

    def may_be_above(self, name: str) -> bool:
        """Return whether what is there may be above its limit."""
        del name
        return False

    def _parts(self, name: str) -> list[Sight]:
        return [sight for one, sight in self.last.items() if whole(one) == whole(name)]

    def _token(self, name: str, stored: bytes) -> str:
        """Return which message lies there."""
        del name
        return token_in(stored)

    def _read(self, name: str, call: Call) -> Sight:
        flat, sessions, line, messages, consumers, segments = call.seen
        fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
        kind, limit = fields[b"kind"], fields[b"limit_bytes"]
        sight = Sight(float("inf") if limit == b"unlimited" else float(limit), fields[b"epoch"].decode())
        sight.sliced = b"slices_pool" in fields
        sight.spread, sight.is_held = fields.get(b"spread", b"").decode(), bool(fields.get(b"spreading"))
        for session, text in zip(sessions[::2], sessions[1::2], strict=True):
            sid, credit = session.decode(), credit_in(text)
            if credit.held < 0:
                self.breaks("P2", f"{call.script} left {credit.held} bytes to {sid} at {name}")
            sight.leased[sid], sight.granted[sid] = credit.held, credit.granted
            sight.incarnations[sid], sight.needs[sid] = credit.incarnation, credit.needs
        sight.line = [session.decode() for session in line]
        sight.stored = {at: self._token(name, entry[1]) for at, entry in messages}
        spooled = [int(one.partition(b" ")[0]) for one in segments] if kind == b"store" else []
        sight.pending = size_of(sight.stored) + sum(spooled)
        sight.in_hand = sum(map(messages_in_hand, consumers))
        sight.opens = not fields.get(b"stopped") and not fields.get(b"shut")
        counted = tuple(int(fields[one]) for one in COUNTED)
        there = sight.pending, len(messages) + len(spooled), sum(sight.leased.values()), len(sight.line)
        if kind in (b"queue", b"store") and counted != there:
            self.breaks("P2", f"{call.script} counted {counted} at {name}, where {there} are")
        if kind == b"gate" and counted[2:] != there[2:]:
            self.breaks("P2", f"{call.script} counted {counted[2:]} at {name}, where {there[2:]} are")
        sight.learns_until = self.loop.now + (int(fields.get(b"learning_until", 0)) - call.at_ms) / 1000
        sight.opens = sight.opens and sight.learns_until <= self.loop.now
        return sight

    def _stored(self, name: str, before: Sight | None, sight: Sight) -> None:
        known = before.stored if before else {}
        for at, token in sight.stored.items():
            if at not in known:
                if (name, token) in self.stored:
                    self.breaks("P5", f"the message {token} is stored twice at {name}")
                self.stored.add((name, token))
                slices = {one: at for one, at in self.last.items() if whole(one) == whole(name)}
                self.order.late = self.loop.now < self.disturbed + 1
                for wrong in self.order.stored(token, place_of(name), name, slices) if not self.lost_writes else ():
                    self.breaks("order", wrong)

    def _leases(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        for sid in before.leased.keys() - sight.leased.keys():
            owner, silent = self.owners.get(sid), self.loop.now - self.heard.get((name, sid), 0.0)
            own = any(word.decode(errors="replace") == sid for word in call.words if len(word) < 80)
            if owner and not own and owner.name != call.caller.removesuffix(AGAIN) and silent < self._lasts():
                self.breaks("P4", f"{call.script} took {sid} its lease at {name}, {silent:.2f} s after its last call")
        alive = set(sight.line) - self.died.keys()
        if not alive:
            self._waits.pop(name, None)
        waits = max(self._waits.setdefault(name, self.loop.now), *self._jumps[-1:], 0.0) if alive else self.loop.now
        for sid, held in sight.leased.items():
            since = max(self.died.get(sid, 1e9), self.heard.get((name, sid), 0.0), self.disturbed)
            lasts = TTL + 1 + (self._set_back if self.loop.now < waits + TTL + 1 + POLL else 0)
            if held and self.loop.now > since + lasts and self.loop.now >= sight.learns_until:  # from a first call on
                self.breaks(
                    "P4", f"{sid} died {self.loop.now - self.died[sid]:.2f} s ago and holds {held} bytes at {name}"
                )

    def _lasts(self) -> float:
        """Return the seconds that a lease lasts at the least, as clocks were set of late."""
        return LASTS[min(sum(at > self.loop.now - 2 * TTL for at in self._jumps), 2)] * TTL

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        drains = sight.is_held and any(one.total or one.learns_until > self.loop.now for one in self._parts(name))
        head = sight.line[0] if sight.line and sight.opens and not drains else ""
        total, within = (self._total(name), DRAWS) if sight.sliced else (sight.total, POLL)
        asks = head and (name, head) not in self._ghosts
        if not asks or place_of(name) in self.shared or not 0 < sight.needs[head] <= sight.limit - total:
            self._idle.pop(name, None)
        elif (
            not sight.sliced
            and before.opens
            and before.line[:1] == [head]
            and sight.limit - sight.total > before.limit - before.total
        ):
            self.breaks("P6", f"{call.script} left {head} in line, and room for it, at {name}")
        else:
            since = max(self._idle.setdefault(name, self.loop.now), self.disturbed)
            if self.loop.now > since + within:
                self.breaks("P6", f"{head} is in line for {self.loop.now - since:.2f} s, with room for it, at {name}")
        for place, sid in enumerate(before.line if before.opens and sight.opens else ()):
            passed = [  # whoever begins anew has left the line
                one
                for one in before.line[:place]
                if one in sight.line and before.incarnations[one] == sight.incarnations[one]
            ]
            if (
                passed
                and before.granted[sid] < sight.granted.get(sid, 0)
                and before.incarnations[sid] == sight.incarnations[sid]
            ):
                self.breaks("P7", f"{call.script} granted {sid} before {passed} at {name}")

    # What applications do.

    def applies(self, place: str, limit: float | None) -> None:
        """Note that a limit was applied there; None: that somebody begins to, so any may be in force until then."""
        others = self._applying[place]
        self._applying[place] += 1 if limit is None or others > 1 else -1  # of two at once either may be the last
        self._applied.pop(place, None)
        if limit is None and not others:
            self._in_vain.discard(place)
        elif limit is not None and others == 1 and place not in self._in_vain:
            self._applied[place] = limit, self.loop.now

    def has_receipt(self, place: str, token: str, process: Process) -> None:
        self.receipts[token] = process.name
        if not any(one == token and place_of(name) == place for name, one in self.stored | self.lost):
            self.breaks("P3", f"the message {token} has a receipt and was never stored")

    def receives(self, token: str, session: str) -> None:
        """Note that a session hands it out; one that was frozen past its lease may not know that others had it.

        Nor may one know that of whose delivery a lost state knows nothing.
        """
        self.received.add(token)
        if token in self.accepted and not self.deliveries.was_forgotten(session, token):
            heard = [at for (name, sid), at in self.heard.items() if sid == session and (name, token) in self.stored]
            if not heard or self.loop.now < max(heard) + self._lasts():
                self.breaks("P5", f"the message {token} was accepted, and came again")

    def has_accepted(self, place: str, token: str, begun: float) -> None:
        """Note that it is confirmed; the answer may have been on its way as a failover lost what it says."""
        if self.loop.now > self._ghost_at + GHOSTS and self._back_at.get(token, 0.0) < begun:
            self.accepted.add(token)
            parts = [sight for name, sight in self.last.items() if place_of(name) == place]
            if any(token in sight.stored.values() for sight in parts):
                self.breaks("P5", f"the message {token} was accepted, and is still there")

    def ended(self, what: str, late: float) -> None:
        """Note that a call ended so many seconds after its time."""
        if late > LATE:
            self.breaks("P11", f"{what} ended {late:.2f} s after its time")

    def explained(self, what: str, begun: float, why: Sequence[Any]) -> None:
        """Note why a call says that it waited; while something fails, finding out may take too long."""
        if not any(why) and self.disturbed < begun:
            self.breaks("P10", f"{what} waited and was not told why")

    def finish(self) -> None:
        """Judge the whole history."""
        here = {token for sight in self.last.values() for token in sight.stored.values()}
        lost = {token for _, token in self.lost}
        for token, owner in sorted(self.receipts.items()):
            if token not in self.received | here | lost:
                self.breaks("P3", f"the message {token} of {owner} has a receipt and is gone")
