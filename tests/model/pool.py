"""A pool and a slice of it in plain Python: what lua/pool.lua and lua/slice.lua must answer while no state is lost."""

from dataclasses import dataclass, field


@dataclass
class Member:
    granted: int = 0
    returned: int = 0
    need: int = 0
    reserved: bool = False


@dataclass
class ModelPool:
    """A limit in bytes, members by name, and the line of those who wait, the reserved first."""

    limit: int
    reserve: int
    members: dict[str, Member] = field(default_factory=dict)
    line: list[str] = field(default_factory=list)

    @property
    def granted(self) -> int:
        return sum(member.granted - member.returned for member in self.members.values())

    def most(self, member: Member) -> int:
        return self.limit - (0 if member.reserved else self.reserve)

    def room(self, member: Member) -> int:
        return self.most(member) - self.granted

    def draw(self, name: str, granted: int, returned: int, need: int, reserved: bool) -> tuple[str, int, int, int]:
        """Return code, granted, returned and place, as the script does."""
        known = self.members.get(name, Member())
        if granted > known.granted:
            return "GONE", known.granted, known.returned, 0
        member = self.members.setdefault(name, known)
        member.returned = min(max(member.returned, returned), member.granted)
        member.need, member.reserved = need, reserved
        if need <= member.granted or need - member.returned > self.most(member):
            self.line = [other for other in self.line if other != name]
        else:
            if name not in self.line:
                ahead = [other for other in self.line if self._first.get(other)] if reserved else list(self.line)
                self.line.insert(len(ahead), name)
                self._first[name] = reserved
            only = len(self.line) == 1
            self._serve()
            if only and need <= member.granted:
                share = (self.limit - self.reserve) // (2 * (len(self.members) + self._new(name)))
                member.granted += max(0, min(262144, share, self.room(member)))
        self._serve()
        self._stored.add(name)
        return "OK", member.granted, member.returned, self.line.index(name) + 1 if name in self.line else 0

    _first: dict[str, bool] = field(default_factory=dict)
    """Whether who is in line joined it as a reserved member."""
    _stored: set[str] = field(default_factory=set)

    def _new(self, name: str) -> int:
        return 1 if name in self._stored else 0  # the script counts itself in before its record is written

    def _serve(self) -> None:
        while self.line:
            head = self.members[self.line[0]]
            if head.need - head.returned <= self.most(head):
                if head.need - head.granted > self.room(head):
                    return
                head.granted += max(0, head.need - head.granted)
            self.line.pop(0)


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
