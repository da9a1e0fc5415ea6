"""Says why a link does not move, or not as it should: a code for processes, and a sentence for people."""

from collections.abc import Mapping
from typing import Final, NamedTuple

SENTENCES: Final[Mapping[str, str]] = {
    "starting": "it begins",
    "rate": "its rate is used up",
    "no-room": "the target has no room",
    "spreads": "the target's messages are about to go to other slices",
    "spools": "the target has no room in memory, so what it brings goes to its store",
    "no-source": "there is no such source",
    "subscriptions": "the source has as many subscriptions as it may, by its max_subscriptions",
    "source": "the source answers {}",
    "target": "the target answers {}",
    "topic": "the topic answers {}",
    "dead-letters": "the dead-letter destination {}",
    "undeliverable": "message {}, and there are no dead letters",
    "slow-end": "one of its ends does not answer in time",
    "error": "{}",
}
"""The sentence of each code, with a place for what only one link has to say."""


class Trouble(NamedTuple):
    """Says why a link does not move, or not as it should.

    Attributes:
        code: one of :data:`SENTENCES`, or what a newer node says.
        text: its sentence.
    """

    code: str
    text: str

    @property
    def stalls(self) -> bool:
        """Whether nothing moves: a link that spools does."""
        return self.code != SPOOLS.code

    @classmethod
    def of(cls, code: str, detail: object = "") -> "Trouble":
        """Return the trouble of that code.

        >>> Trouble.of("target", "KIND").text
        'the target answers KIND'
        """
        return cls(code, SENTENCES[code].format(detail))


STARTING: Final = Trouble.of("starting")
PACED: Final = Trouble.of("rate")
NO_ROOM: Final = Trouble.of("no-room")
SPOOLS: Final = Trouble.of("spools")
