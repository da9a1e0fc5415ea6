"""A window says how many messages and bytes a consumer may hold unsettled; a fetch has other bounds beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from headgate.core.limits.turns_over_slices import Turn
from headgate.errors import InvalidValue
from headgate.units import MAX_SIZE, Unlimited, parse_size

Mode = Literal["push", "pull", "paused"]
MAX_FETCH: Final = 256
LINGER: Final = 0.002
"""Seconds that settlements wait for company, unless half the window is settled already."""
LINGER_SHARED: Final = 0.016
"""The same under a window that several destinations share, while more that came from this one is being worked on."""
FETCH_BYTES: Final = 4 << 20
"""Most that one reply should carry when the window itself sets no bound on bytes."""


class _Preset:
    """A preset is a window that is a word: ``Window.pull``, ``Window.paused``, ``Window.unlimited``."""

    def __init__(self, mode: Mode) -> None:
        self._mode: Mode = mode

    def __get__(self, instance: "Window | None", owner: type["Window"]) -> "Window":
        return owner(mode=self._mode, messages=1 if self._mode == "pull" else "unlimited")


@dataclass(frozen=True, slots=True, repr=False)
class Window:
    """A window bounds the messages and bytes that a consumer may hold unsettled.

    >>> Window(messages=1000, bytes="1MiB")
    Window(messages=1000, bytes=1048576)
    >>> Window.pull, Window.paused, Window.unlimited
    (Window.pull, Window.paused, Window.unlimited)

    Args:
        messages: 1 and more, or ``"unlimited"``. One: a message is settled before the next comes.
        bytes: a size, or ``"unlimited"``. One message comes even if it is larger.
        top_up: the share of the window that must be free again before more is fetched.

    ``Window.pull`` fetches one message for each that is asked for. ``Window.paused`` fetches nothing.

    Raises:
        InvalidValue: zero or a negative number; say ``paused`` or ``pull``.
    """

    messages: int | Unlimited = 1000
    bytes: int | str = "unlimited"
    top_up: float = 0.5
    mode: Mode = field(default="push", kw_only=True)

    pull = _Preset("pull")
    paused = _Preset("paused")
    unlimited = _Preset("push")

    def __post_init__(self) -> None:
        if self.messages != "unlimited" and (
            not isinstance(self.messages, int) or isinstance(self.messages, bool) or not 1 <= self.messages < MAX_SIZE
        ):
            raise InvalidValue(
                f"window messages: {self.messages!r}; use a number from 1 to {MAX_SIZE - 1}, or 'unlimited', 'pull', "
                "'paused'"
            )
        if self.bytes != "unlimited":
            size = parse_size(self.bytes, "window bytes")
            if size == 0:
                raise InvalidValue("window bytes: 0; use at least 1, or 'unlimited', 'pull', 'paused'")
            object.__setattr__(self, "bytes", size)
        if not 0 < self.top_up <= 1:
            raise InvalidValue(f"window top_up: {self.top_up!r}; use a share above 0 and up to 1")

    @classmethod
    def of(cls, value: "Window | int | str") -> "Window":
        """Return a window from one, from a number of messages, or from a word.

        Raises:
            InvalidValue: none of these.
        """
        if isinstance(value, Window):
            return value
        if value in ("pull", "paused", "unlimited"):
            return {"pull": cls.pull, "paused": cls.paused, "unlimited": cls.unlimited}[str(value)]
        if isinstance(value, int):
            return cls(messages=value)
        raise InvalidValue(
            f"{value!r}; use a number of messages, Window(...), 'pull', 'paused' or 'unlimited'", setting="window"
        )

    @classmethod
    def parse(cls, text: str) -> "Window":
        """Return the window that :attr:`text` says.

        Raises:
            InvalidValue: it says none.
        """
        messages, slash, size = text.partition("/")
        size, _, top_up = size.partition("/")
        if not slash:
            return cls.of(int(text) if text.isdecimal() else text)
        try:
            share = float(top_up or 0.5)
        except ValueError:
            raise InvalidValue(f"{top_up!r} is not a number; use one above 0 and up to 1", setting="top_up") from None
        return cls(
            int(messages) if messages.isdecimal() else "unlimited",
            int(size) if size.isdecimal() else size,
            share,
        )

    def __repr__(self) -> str:
        if self.mode != "push":
            return f"Window.{self.mode}"
        if self.messages == "unlimited" and self.bytes == "unlimited":
            return "Window.unlimited"
        return f"Window(messages={self.messages!r}, bytes={self.bytes!r})"

    @property
    def text(self) -> str:
        """As the operator reads it: ``pull``, ``paused`` or messages/bytes, and the share of the top-up unless half."""
        if self.mode != "push":
            return self.mode
        return f"{self.messages}/{self.bytes}" + (f"/{self.top_up:g}" if self.top_up != 0.5 else "")


class Call(Enum):
    """These calls have no arguments of the machine's own."""

    ATTACH = auto()
    """Attach anew: what was held is others' now."""
    TELL = auto()
    """Tell the window."""
    READ_SETTINGS = auto()
    PASS_ON = auto()
    """Have another consumer be woken for what this one was woken for."""
    COMPARE = auto()
    """Compare what Redis says is held with what is held, and give back the rest."""


class Demand(Protocol):
    """A demand asks for the messages that are fetched."""

    @property
    def asked(self) -> int:
        """How many messages are asked for at this moment; a window of ``pull`` fetches no more."""

    @property
    def waits(self) -> int:
        """How many wait for a message while none is here, for Redis to know whom to serve first."""

    @property
    def resumes(self) -> bool:
        """Whether fetching goes on by itself after messages were handed back."""

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages to fetch."""


class Allowance(Protocol):
    """An allowance is a consumer's room: a window of its own, or a share of one."""

    messages: int
    bytes: int

    @property
    def window(self) -> Window:
        """The window in force."""

    @property
    def among(self) -> "AmongOthers | None":
        """How it stands among those that share the window; None where nobody does."""

    def linger(self, settled: int) -> float:
        """Return the seconds for which so many settlements wait for company."""

    def deliver(self, messages: int, size: int) -> None:
        """Count deliveries, ``size`` bytes in all."""

    def fill(self, size: int) -> None:
        """Close what is left of the bytes if it takes no message of ``size``."""

    def settle(self, messages: int, size: int) -> None:
        """Count settlements, ``size`` bytes in all."""

    def clear(self) -> None:
        """Count everything as given back."""

    def configure(self, window: Window) -> None:
        """Change the window."""

    def ask(self, going: int, going_bytes: int, asked: int, *, due: bool, again: bool, now: float) -> tuple[int, int]:
        """Return the room for a fetch in a call that settles these; ``again``: for one that is repeated."""

    def free(self, asked: int) -> tuple[int, int]:
        """Return the room by which to decide when to look."""

    def reserve(self, messages: int) -> None:
        """Note that that many messages are being fetched."""

    def release(self, brought: int) -> bool:
        """Note that a fetch was answered, and by how many messages; returns whether to look again at once."""


class AmongOthers(Protocol):
    """A share of a window stands among the others, whose turns go by what lies there where these are slices."""

    outcomes: Sequence[tuple[Any, "Delivery", Any]]
    """Settlements on their way out."""
    demand: Demand | None
    """Those for whom it fetches."""

    @property
    def patience(self) -> float:
        """Seconds after which a call is late: the others need not wait for what it settles, and may bring."""

    def took(self, messages: int, turn: Turn | None, *, rests: bool, lacks: bool = False) -> None:
        """Count what a fetch brought.

        Args:
            messages: how many.
            turn: which part of a turn there these are; None where there are no slices, or nothing is left.
            rests: whether nothing is left there for now.
            lacks: whether there are more, which wait for their part of a rate.
        """

    def calls(self, *, begins: bool) -> None:
        """Note that a call begins, or that none is under way: whoever calls cannot fetch meanwhile."""

    def woken(self) -> None:
        """Note that it alone was woken for a message."""

    def passes_on(self, *, rests: bool) -> bool:
        """Return whether another is to be woken for that message, once; who ``rests`` fetches nothing, in no turn."""

    def answered(self, took: float) -> None:
        """Note that a call was answered after so many seconds."""

    def surplus(self, newest: Iterable["Delivery"]) -> int:
        """Return how many of the newest deliveries came too late: others were given their room."""

    def settles(self) -> None:
        """Note that there is one settlement more on its way out."""

    def overdue(self, *, away: bool = False) -> None:
        """Note that a call is not answered soon; ``away``: that Redis does not answer."""


class Delivery(Protocol):
    """A delivery is a message that is held, as far as the machine of a consumer needs it."""

    raw_id: bytes
    size: int


T = TypeVar("T", bound=Delivery)


@dataclass(slots=True)
class Exchange(Generic[T]):
    """An exchange is a call that settles and fetches.

    Attributes:
        going: the settlements that it carries.
        weight: bytes of the messages that they settle.
        fetch: number of the fetch; 0 for none.
        messages: most that it may bring.
        size: most bytes, but for a first message that is larger.
        after: id after which a page of a repeated fetch begins.
        waits: how many wait for a message.
        asked_at: when it was made.
    """

    going: list[tuple[Any, T, Any]]
    weight: int
    fetch: int
    messages: int
    size: int
    after: bytes
    waits: int
    asked_at: float
    hints: int
    looks: int
