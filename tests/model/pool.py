"""A pool and a slice of it in plain Python: what lua/pool.lua and lua/slice.lua must answer while no state is lost."""

from dataclasses import dataclass, field


@dataclass
class Member:
    granted: int = 0
    returned: int = 0
    need: int = 0
    reserved: bool = False
    weight: int = 1

    @property
    def held(self) -> int:
        return self.granted - self.returned

    @property
    def lacks(self) -> int:
        return self.need - self.granted


@dataclass
class ModelPool:
    """A limit in bytes, members by name, and the line of those who wait: who holds least for its weight is first."""

    limit: int
    reserve: int
    members: dict[str, Member] = field(default_factory=dict)
    places: dict[str, tuple[bool, bool, int, int]] = field(default_factory=dict)
    tickets: int = 0

    @property
    def line(self) -> list[str]:
        return sorted(self.places, key=lambda name: self.places[name])

    @property
    def granted(self) -> int:
        return sum(member.held for member in self.members.values())

    def most(self, member: Member) -> int:
        return self.limit - (0 if member.reserved else self.reserve)

    def room(self, member: Member) -> int:
        return self.most(member) - self.granted

    def has_a_claim(self, name: str, member: Member) -> bool:
        """Return whether it could be served without any other falling below its level."""
        if member.held <= 0 or member.lacks <= self.room(member):
            return True
        others = (o for other, o in self.members.items() if other != name and o.reserved >= member.reserved)
        kept = sum(min(o.held, member.held * o.weight // member.weight) for o in others)
        return kept + member.held + member.lacks <= self.most(member)

    def _stand(self, name: str, member: Member) -> None:
        if name not in self.places:
            self.tickets += 1
        ticket = self.places[name][3] if name in self.places else self.tickets
        claims = self.has_a_claim(name, member)
        held = member.held + (0 if claims else member.lacks)
        step = min(held * 2**20 // (member.weight * self.most(member)), 2**20 - 1)
        self.places[name] = (not member.reserved, not claims, step, ticket)

    def draw(
        self, name: str, granted: int, returned: int, need: int, reserved: bool, weight: int = 1
    ) -> tuple[str, int, int, int]:
        """Return code, granted, returned and place, as the script does."""
        known = self.members.get(name, Member())
        if granted > known.granted:
            return "GONE", known.granted, known.returned, 0
        member = self.members.setdefault(name, known)
        member.returned = min(max(member.returned, returned), member.granted)
        member.need, member.reserved, member.weight = need, reserved, weight
        if need <= member.granted or need - member.returned > self.most(member):
            self.places.pop(name, None)
        else:
            self._stand(name, member)
            only = len(self.line) == 1
            self._serve()
            if only and need <= member.granted:
                share = (self.limit - self.reserve) // (2 * (len(self.members) + self._new(name)))
                member.granted += max(0, min(262144, share, self.room(member)))
        self._serve()
        self._stored.add(name)
        return "OK", member.granted, member.returned, self.line.index(name) + 1 if name in self.line else 0

    _stored: set[str] = field(default_factory=set)

    def _new(self, name: str) -> int:
        return 1 if name in self._stored else 0  # the script counts itself in before its record is written

    def _serve(self) -> None:
        while self.places:
            head = self.members[self.line[0]]
            if head.need - head.returned <= self.most(head):
                if head.need - head.granted > self.room(head):
                    return
                head.granted += max(0, head.need - head.granted)
            del self.places[self.line[0]]


@dataclass
class ModelSlice:
    """What a destination holds of its only pool, with one session that may hold credit and wait for one message.

    Milliseconds pass as the caller says; a debt that nobody asks for, and what was drawn for the first in line, end so.
    """

    granted: int = 0
    returned: int = 0
    debt: int = 0
    used: int = 0
    waits: int = 0
    now: int = 0
    asked: int = -3000
    drawn: int = -1000

    @property
    def owed(self) -> int:
        return max(self.returned, self.debt if self.now - self.asked < 3000 else 0)

    @property
    def need(self) -> int:
        return max(self.granted, self.returned + self.used + self.waits) if self.waits else self.granted

    def ask(self, size: int) -> None:
        """Ask for that much more than is held."""
        self.waits = size
        self.serve()

    def free(self, size: int) -> None:
        """Stop waiting, and give so much back."""
        self.used, self.waits = self.used - size, 0

    def serve(self) -> None:
        if self.used + self.waits <= self.granted - self.owed:
            self.used, self.waits = self.used + self.waits, 0

    def hear(self, granted: int, returned: int, target: int = 0, debt: str = "keep") -> None:
        """Take in the pool's totals, give back what is asked for, pay what is owed, serve who waits."""
        before = self.owed
        if granted > self.granted:
            self.drawn = self.now
        self.debt = 0 if granted > self.granted or debt == "void" else before
        self.granted, self.returned = max(self.granted, granted), max(self.returned, returned)
        self._pay(target, debt)
        self.serve()

    def look(self) -> None:
        """Pay what is owed."""
        self._pay(0, "keep")
        self.serve()

    def _pay(self, target: int, debt: str) -> None:
        first = self.now - self.drawn < 1000 and self.used + self.waits <= self.granted - self.owed
        free = self.granted - self.used - (self.waits if first else 0)
        if debt == "owe":
            owes = min(target, free if first and self.waits else self.granted)
            self.debt, self.asked = max(self.owed, owes), self.now
        self.returned = max(self.returned, min(max(target, self.owed), free))
