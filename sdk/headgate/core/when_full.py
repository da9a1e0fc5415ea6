"""A full destination leaves a send these choices: wait, fail, fail after a while, drop its message, or spool it."""

from dataclasses import dataclass
from typing import Final

from headgate.errors import PolicyError
from headgate.units import duration_text, parse_duration


@dataclass(frozen=True, slots=True)
class WhenFull:
    """One answer to "there is no room".

    >>> WhenFull.parse("fail-after 3s")
    WhenFull(patience=3.0, drops=False, spools=False)

    Attributes:
        patience: seconds of waiting after which it gives up; 0 once Redis was asked, None as long as its caller waits.
        drops: giving up is dropping the message, which is no error.
        spools: the payload goes to the destination's spool store; what happens without room there, the store says.
    """

    patience: float | None = None
    drops: bool = False
    spools: bool = False

    @property
    def text(self) -> str:
        """As the state keeps it.

        >>> WhenFull.parse("fail-after 2min").text, WhenFull.parse("fail-after 0s").text
        ('fail-after 120s', 'fail')
        """
        if self.drops or self.spools:
            return "drop" if self.drops else "spool"
        if self.patience is None:
            return "block"
        return f"fail-after {duration_text(self.patience)}" if self.patience else "fail"

    @classmethod
    def parse(cls, text: str) -> "WhenFull":
        """Return what the setting ``when_full`` says; nothing is ``block``.

        Raises:
            PolicyError: another word.
            InvalidValue: a duration that cannot be read.
        """
        word, _, patience = str(text).partition(" ")
        if word == "fail-after" and patience:
            return cls(parse_duration(patience.strip(), "when_full"))
        if text in _WORDS:
            return _WORDS[text]
        meant = _MEANT.get(str(text).lower())
        more = f"; {text} of other brokers is {meant} here" if meant else ""
        raise PolicyError(f"{text!r}; use block, fail, 'fail-after 3s', drop or spool{more}", setting="when_full")


BLOCK: Final = WhenFull()
FAIL: Final = WhenFull(0.0)
_WORDS: Final = {
    "": BLOCK,
    "block": BLOCK,
    "fail": FAIL,
    "drop": WhenFull(0.0, drops=True),
    "spool": WhenFull(spools=True),
}
_MEANT: Final = {"page": "spool", "block": "block", "fail": "fail", "drop": "drop", "rejectincoming": "fail"}
"""Policies of Artemis' address-full-policy, written as there, and of EMS' overflowPolicy."""
