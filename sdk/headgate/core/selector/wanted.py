"""A topic decides, before a message is stored, which subscriptions want it, by the selectors that it lists.

Receivers judge again what reaches them, so that nothing here has to be known in time, or complete: a message that
nobody judged is stored for every subscription.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final
from urllib.parse import quote, unquote

from headgate.core.selector.messages import head_size, headers_for
from headgate.core.selector.parser import Selector
from headgate.errors import InvalidValue, MessageFormatError

AS_IT_IS: Final = "="
"""It stands for the selector that a subscription has already."""
LONGEST: Final = 2000
"""Bytes of an encoded selector; one that is longer is judged by its receivers alone."""
MOST_READ: Final = 16 << 10
"""Bytes before a message's body that are read for selectors; a message with more is for every subscription."""
MOST_LISTED: Final = 16
"""Selectors of one topic that are judged, as many as it lists."""
MOST_WORK: Final = 4 << 20
"""Characters of selectors times bytes before a body, at most, that are judged for a message (30 ms at worst): for
each character of a pattern all of a header is looked through. It is for all other subscriptions."""
ALLOWED: Final = 0.0001
"""Seconds of processor time that a selector may take for a message, on average."""
MOST_OVER: Final = 0.05
"""Seconds above that after which nothing is judged any more before it is stored."""


def word_of(selector: str | None) -> str:
    """Return a selector as the script ``attach`` takes it: encoded, or a hash where it is long; nothing without one.

    >>> word_of("region = 'EU'")
    'region%20%3D%20%27EU%27'
    """
    word = quote(selector or "", safe="")
    return word if len(word) <= LONGEST else f"#{hashlib.sha256(word.encode()).hexdigest()}"


class TopicSelectors:
    """A topic lists these selectors, each with the subscription that it is of.

    Args:
        clock: returns seconds of processor time of this thread.
        over: called when they take too long, after which nothing is judged until the list changes.
    """

    def __init__(self, clock: Callable[[], float], over: Callable[[], None]) -> None:
        self._clock, self._tell = clock, over
        self._text = self._subscriptions = ""
        self.selectors: list[Selector] = []
        """Those to judge; none where nothing is."""
        self._names: frozenset[str] = frozenset()
        self._ends: list[int] = []
        """Characters of each selector and all before it."""
        self._length = 0
        self._over = 0.0

    def adopt(self, text: str) -> None:
        """Take in the field ``selectors`` of the topic: ``<subscription>=<id>=<selector>``, with blanks between."""
        if text == self._text:
            return
        known = {selector.text: selector for selector in self.selectors}
        self._text, self.selectors, self._over = text, [], 0.0
        listed = []
        for entry in text.split()[:MOST_LISTED]:
            subscription, _, rest = entry.partition("=")
            id_, _, word = rest.partition("=")
            wanted = unquote(word)
            try:
                self.selectors.append(known.get(wanted) or Selector.parse(wanted))
            except InvalidValue:  # of a later version, say: its receivers judge
                continue
            listed.append(f"{subscription}={id_}")
        self._subscriptions = ",".join(listed)
        self._names = frozenset().union(*(selector.names for selector in self.selectors))
        self._ends = list(accumulate(len(selector.text) for selector in self.selectors))
        self._length = self._ends[-1] if self._ends else 0

    def unwanted(self, bodies: Sequence[bytes]) -> str:
        """Return which messages are not for which subscriptions, as the script ``publish`` takes it."""
        masks = []
        for stored in bodies:
            began = self._clock()
            masks.append(self._mask(stored))
            self._over = max(0.0, self._over + self._clock() - began - ALLOWED * len(self.selectors))
            if self._over > MOST_OVER:
                self.selectors = []
                self._tell()
                return ""
        return f"{self._subscriptions} {' '.join(map(str, masks))}" if any(masks) else ""

    def _mask(self, stored: bytes) -> int:
        """Return a number with a bit for each subscription that does not want a message."""
        try:
            head = len(stored)
            if head > MOST_READ or head * self._length > MOST_WORK:
                head = head_size(stored)
            if head > MOST_READ:
                return 0
            headers = headers_for(stored, self._names)
        except MessageFormatError:  # whoever receives it makes it a dead letter
            return 0
        selectors = self.selectors
        if head * self._length > MOST_WORK:
            selectors = [one for one, end in zip(selectors, self._ends, strict=True) if head * end <= MOST_WORK]
        return sum(1 << at for at, selector in enumerate(selectors) if not selector.matches(headers))
