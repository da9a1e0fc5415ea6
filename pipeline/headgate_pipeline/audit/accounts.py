"""The accounts of a destination's sessions, as its ledger tells of them. Pure: no Spark, no I/O."""

from collections.abc import Callable
from math import inf
from typing import Final

NOTED: Final = 40
"""Sessions whose end is remembered by name; more are known to have none, and not since when."""

LEFT: Final = "which left"
RECLAIMED: Final = "which was reclaimed"

Say = Callable[[str, str, object, object], None]


class Account:
    """An account has the totals of one session. None: not known, since the account is older than the period.

    ``doubted``: opened or held while a destination may have learnt: a claim that changes no counter leaves no event, so
    its totals may be higher than the entries say. Its holdings are as they say.
    """

    __slots__ = ("doubted", "granted", "granted_m", "held", "held_m")

    def __init__(self, amount: int | None, *, doubted: bool = False) -> None:
        self.granted = self.granted_m = self.held = self.held_m = amount
        self.doubted = doubted


class Accounts:
    """Follows grants, returns, reclaims, and what each entry therefore does to the counters of leased.

    ``bytes`` and ``messages`` are what the entry adds to leased, ``grown`` and ``grown_m`` how much of it was granted,
    beside what :meth:`explain` takes from the counters for accounts whose totals are not known.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self.of: dict[str, Account] = {}
        self._gone: dict[str, str] = {}
        self.whole = False  # the ledger is there from its first entry
        self.learning = False  # nothing was granted since the epoch began: claims may be open
        self.taken_over = 0
        self._unknown: list[Account] = []
        self._range = [0.0, 0.0, 0.0, 0.0]  # least and most bytes, least and most messages, beside what is known
        self.granted: tuple[int, int] | None = None
        self.begin()

    def begin(self) -> None:
        """Begin the next entry."""
        self.bytes = self.messages = self.grown = self.grown_m = self.lacks = 0
        if self._unknown:
            self._unknown, self._range = [], [0.0, 0.0, 0.0, 0.0]

    def forget(self, *, whole: bool) -> None:
        """Know nothing of any account; or, with ``whole``, that there is none."""
        self.of.clear()
        self._gone.clear()
        self.whole = self.learning = whole

    def doubt(self) -> None:
        """An epoch begins: whoever has an account may claim."""
        self.learning = True
        for account in self.of.values():
            account.doubted = True

    def _account(self, session: str, what: str) -> Account:
        account = self.of.get(session)
        if account is None:
            if self.whole:
                self._say(
                    "P4", f"{what} {session}, {self._gone.get(session, 'which has no account')}", "an account", "none"
                )
            account = self.of[session] = Account(None)
        return account

    # Events.

    def open(self, session: str) -> None:
        """Follow a new account."""
        before = self.of.get(session)
        if before is not None and (before.held or before.granted):
            self._say("P5", f"a new account for {session}, which has one", "none", "an account")
        self.of[session] = Account(0, doubted=self.learning)

    def reopen(self, session: str, size: int, messages: int) -> None:
        """Follow an account that took the place of another, whose credit was freed."""
        self._free(session, size, messages, "a newer account took the place of")
        self.of[session] = Account(0, doubted=self.learning)

    def attach(self, session: str) -> None:
        """Follow a consumer, whose session has an account from then on."""
        if self.whole and session not in self.of:
            self.of[session] = Account(0, doubted=self.learning)

    def claim(self, session: str, granted: int, granted_m: int) -> None:
        """Follow a claim: the counters alone show how much it holds."""
        account = self.of.setdefault(session, Account(None))
        account.granted, account.granted_m = granted, granted_m
        self._leave_open(account, -inf, inf, -inf, inf)

    def ticket(self, _session: str, size: int, messages: int) -> None:
        """Remember what the grant that follows must be."""
        self.granted = (size, messages)

    def grant(self, session: str, granted: int, granted_m: int) -> None:
        """Follow a grant by its totals."""
        account = self.of.get(session) or self._account(session, "a grant to")
        if account.granted is None or account.granted_m is None:
            self._leave_open(account, 0, inf, 0, inf)
            self.taken_over += 1
        else:
            more, more_m = granted - account.granted, granted_m - account.granted_m
            if more < 0 or more_m < 0 or (more == 0 and more_m == 0):
                self._say(
                    "P2", f"the totals granted to {session} do not grow with a grant",
                    f"more than {account.granted} B {account.granted_m} m", f"{granted} B {granted_m} m",
                )  # fmt: skip
            if self.granted is not None:
                if self.granted != (more, more_m):
                    self._say("P2", f"the ticket of {session} is not what it was granted", self.granted, (more, more_m))
                self.granted = None
            self._add(account, more, more_m)
            self.grown += more
            self.grown_m += more_m
            if account.doubted:
                self._leave_open(account, -more, 0, -more_m, 0)
        account.granted, account.granted_m = granted, granted_m
        self.learning = account.doubted = False

    def give_back(self, session: str, size: int, messages: int) -> None:
        """Follow credit that its holder gave back."""
        account = self._account(session, "credit back from")
        if (account.held is not None and account.held < size) or (
            account.held_m is not None and account.held_m < messages
        ):
            self._say("P2", f"{session} gave back more than it held", _held(account), f"{size} B {messages} m")
        self._add(account, -size, -messages)

    def reclaim(self, session: str, size: int, messages: int) -> None:
        """Follow the end of an account whose lease is over."""
        self._free(session, size, messages, "what was reclaimed of")
        self.end(session, RECLAIMED)

    # Operations.

    def publish(self, session: str, size: int, messages: int, *, spooled: bool) -> None:
        """Use credit. Bytes beyond it are granted by the same call, and so are messages of references, which need none.

        The ledger tells what was granted so by this alone.
        """
        account = self.of.get(session) or self._account(session, "messages from")
        if account.held is not None and account.held < size:
            self.lacks = size - account.held
            self._add(account, self.lacks, 0)
            self.grown += self.lacks
            if account.granted is not None:
                account.granted += self.lacks
        if account.held_m is not None and account.held_m < messages:
            if spooled:
                lacks_m = messages - account.held_m
                self._add(account, 0, lacks_m)
                self.grown_m += lacks_m
                if account.granted_m is not None:
                    account.granted_m += lacks_m
            else:
                self._say("P2", f"{session} published more messages than it held credit for", account.held_m, messages)
        self._add(account, -size, -messages)

    def totals(self, session: str, granted: int, granted_m: int) -> None:
        """Compare the totals that `acquire` answered."""
        account = self.of.get(session) or self._account(session, "a call of")
        if account.granted is None:
            account.granted, account.granted_m = granted, granted_m
        elif (account.granted, account.granted_m) != (granted, granted_m):
            silent = account.doubted and granted >= account.granted and granted_m >= (account.granted_m or 0)
            if not silent:
                self._say(
                "P2", f"the totals of {session} are not what it was granted",
                f"{account.granted} B {account.granted_m} m", f"{granted} B {granted_m} m",
            )  # fmt: skip
            account.granted, account.granted_m = granted, granted_m

    def leave(self, session: str, size: int, messages: int) -> None:
        """Follow the end of an account that its session closed."""
        self._free(session, size, messages, "what was freed when it left is not what was held by")
        self.end(session, LEFT)

    def explain(self, size: int, messages: int) -> bool:
        """Return whether that much more than is known may have been leased, and believe so."""
        least, most, least_m, most_m = self._range
        if not self._unknown or not least <= size <= most or not least_m <= messages <= most_m:
            return False
        account = self._unknown[0]
        if len(self._unknown) > 1:
            for each in self._unknown:
                each.held = each.held_m = None
        elif account.held is not None and account.held_m is not None:
            account.held, account.held_m = account.held + size, account.held_m + messages
            if account.held < 0 or account.held_m < 0:
                return False
        self.grown, self.grown_m = self.grown + size, self.grown_m + messages
        return True

    def end(self, session: str, why: str) -> None:
        """Forget an account, and remember why."""
        self.of.pop(session, None)
        self._gone[session] = why
        if len(self._gone) > NOTED:
            del self._gone[next(iter(self._gone))]

    @property
    def exact(self) -> bool:
        """Whether all that the entry leased is known from it."""
        return not self._unknown

    def sole_holder(self, leased: int) -> bool:
        """Return whether one account holds all that is leased."""
        return any(account.held == leased for account in self.of.values())

    # Helpers.

    def _leave_open(self, account: Account, *amounts: float) -> None:
        self._unknown.append(account)
        self._range = [there + more for there, more in zip(self._range, amounts, strict=True)]

    def _add(self, account: Account, size: int, messages: int) -> None:
        self.bytes += size
        self.messages += messages
        if account.held is not None and account.held_m is not None:
            account.held += size
            account.held_m += messages

    def _free(self, session: str, size: int, messages: int, what: str) -> None:
        account = self._account(session, f"{what}:")
        if account in self._unknown and account.held is not None and account.held_m is not None:
            # Claimed by the same call: all that it holds then is freed, and shows what the claim added or took.
            self._unknown.remove(account)
            more, more_m = size - account.held, messages - account.held_m
            self._add(account, more, more_m)
            self.grown, self.grown_m = self.grown + more, self.grown_m + more_m
        if account.held is not None and (account.held, account.held_m) != (size, messages):
            self._say("P2", f"{what} {session}: not what it held", _held(account), f"{size} B {messages} m")
        self.bytes -= size
        self.messages -= messages


def _held(account: Account) -> str:
    return f"{account.held} B {account.held_m} m"
