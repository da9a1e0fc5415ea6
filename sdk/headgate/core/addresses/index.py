"""An index keeps patterns by their words; it finds those for a name, and those that overlap."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.core.addresses.pattern import Pattern


@dataclass(slots=True)
class _Node:
    below: "dict[str, _Node]" = field(default_factory=dict)
    ends: list[Pattern] = field(default_factory=list)
    """Patterns whose words are those on the way here."""


class PatternIndex:
    """An index holds patterns, each once."""

    def __init__(self) -> None:
        self._top = _Node()

    def add(self, pattern: Pattern) -> None:
        """Add a pattern."""
        node = self._top
        for word in pattern.words:
            node = node.below.setdefault(word, _Node())
        node.ends.append(pattern)

    def fitting(self, words: list[str]) -> Iterator[Pattern]:
        """Yield the patterns for a name of these words."""
        nodes = [self._top]
        for word in (*words, None):
            for node in nodes:
                yield from (one for one in node.ends if one.fits(words))
            if word is None:
                return
            nodes = [next_ for node in nodes for key in {word, "*"} if (next_ := node.below.get(key))]

    def near(self, pattern: Pattern) -> Iterator[Pattern | None]:
        """Yield the patterns that overlap with one, itself included, and None for each step that found none.

        The caller can count the steps, and stop.
        """
        todo = [(self._top, 0)]
        while todo:
            node, at = todo.pop()
            yield None
            yield from (one if one.overlaps(pattern) else None for one in node.ends)
            if at < len(pattern.words) and pattern.words[at] != "*":
                keys: set[str] = {pattern.words[at], "*"} & node.below.keys()
                todo += [(node.below[key], at + 1) for key in keys]
            elif at < len(pattern.words) or pattern.tail:
                todo += [(below, at + 1) for below in node.below.values()]
