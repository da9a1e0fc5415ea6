"""An address pattern says which destinations a rule is for.

A name is words separated by ``.``. In a pattern ``*`` stands for exactly one word, and a last word ``#`` or ``>`` for
the rest: ``#`` for zero or more words, as in Artemis and AMQP, ``>`` for one or more, as in TIBCO EMS.

>>> [Pattern.parse("orders.#").matches(name) for name in ("orders", "orders.eu", "orders.eu.paid", "order")]
[True, True, True, False]
>>> [Pattern.parse("orders.>").matches(name) for name in ("orders", "orders.eu", "orders.eu.paid")]
[False, True, True]
>>> [Pattern.parse("*.eu").matches(name) for name in ("orders.eu", "eu", "a.b.eu")]
[True, False, False]
"""

from dataclasses import dataclass
from typing import Final, Literal

from headgate.errors import PolicyError

WILDCARDS: Final = "*#>"
_LITERAL, _ONE, _END, _SOME, _ANY = 4, 3, 2, 1, 0
_TAILS: Final = {"": _END, ">": _SOME, "#": _ANY}


def with_parent(text: str) -> str:
    """Return a pattern that takes the name before a last ``>`` too; any other is as it was.

    >>> [with_parent(text) for text in ("FOO.>", ">", "FOO.*", "FOO")]
    ['FOO.#', '#', 'FOO.*', 'FOO']
    """
    return f"{text[:-1]}#" if text == ">" or text.endswith(".>") else text


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern is taken apart into its words.

    Attributes:
        text: as it was written.
        words: its words, without a last ``#`` or ``>``.
        tail: ``#``, ``>`` or nothing.
        order: compares specificity: of two patterns that match one name the larger is the more specific. Word by word
            from the left a literal word beats ``*``, which beats the end, ``>`` and ``#``, in this order.
    """

    text: str
    words: tuple[str, ...]
    tail: Literal["", "#", ">"]
    order: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Return the pattern that a text says.

        Raises:
            PolicyError: an empty pattern or word, ``#`` or ``>`` before the end, or a wildcard that is part of a word.
        """
        if not isinstance(text, str) or not text:
            raise PolicyError(f"pattern {text!r}: a pattern is text and not empty; '#' matches every name")
        *words, last = text.split(".")
        tail: Literal["", "#", ">"] = "#" if last == "#" else ">" if last == ">" else ""
        if not tail:
            words.append(last)
        for word in words:
            if not word:
                raise PolicyError(f"pattern {text!r} has an empty word; write words with one '.' between them")
            if word in ("#", ">"):
                raise PolicyError(f"pattern {text!r}: {word!r} stands for the rest, so it can only be the last word")
            if word != "*" and any(wildcard in word for wildcard in WILDCARDS):
                raise PolicyError(f"pattern {text!r}: a wildcard is a whole word, and {word!r} is not")
        order = (*(_ONE if word == "*" else _LITERAL for word in words), _TAILS[tail])
        return cls(text, tuple(words), tail, order)

    @property
    def exact(self) -> bool:
        """Whether it matches one name only: its own text."""
        return not self.tail and "*" not in self.words

    def matches(self, name: str) -> bool:
        """Return whether the pattern is for a destination of this name."""
        return self.fits(name.split("."))

    def fits(self, words: list[str]) -> bool:
        """Return whether the pattern is for a name of these words."""
        more = len(words) - len(self.words)
        if more < 0 or (more > 0 and not self.tail) or (more == 0 and self.tail == ">"):
            return False
        return all(mine in ("*", word) for mine, word in zip(self.words, words, strict=False))

    @property
    def shortest(self) -> int:
        """Words of the shortest name that it matches."""
        return max(1, len(self.words) + (self.tail == ">"))

    def covers(self, other: "Pattern") -> bool:
        """Return whether it matches every name that the other matches."""
        if not self.tail and (other.tail or len(other.words) != len(self.words)):
            return False
        if other.shortest < self.shortest:
            return False
        theirs = (*other.words, *("*" for _ in range(len(self.words) - len(other.words))))
        return all(mine in ("*", word) for mine, word in zip(self.words, theirs, strict=False))

    def overlaps(self, other: "Pattern") -> bool:
        """Return whether some name is matched by both."""
        if (not self.tail and len(self.words) < other.shortest) or (
            not other.tail and len(other.words) < self.shortest
        ):
            return False
        return all(a == b or "*" in (a, b) for a, b in zip(self.words, other.words, strict=False))
