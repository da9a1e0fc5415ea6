"""A connection speaks its last words about its links here: that all is sent, and that it knows of their end."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headgate.amqp.proton import ASSERTS, lib

if TYPE_CHECKING:
    from headgate.amqp.limits import RetainedLinks
    from headgate.amqp.link import Link
    from headgate.amqp.streaming import Streams

Answer = Callable[[Any], None]


class DrainingLinks:
    """Draining links have receivers that want their credit used up, and nothing more to use it for: ``links``."""

    __slots__ = ("_streams", "links")

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self.links: dict[Link, None] = {}

    def add(self, link: "Link") -> None:
        """Answer behind what is on its way."""
        self.links[link] = None

    def answer(self) -> bool:
        """Say it of the links that have sent everything; returns whether there were any.

        The library forgets a drain that is answered while a message is in its buffer.
        """
        answered = False
        for link in tuple(self.links):
            if not link.alive or not link.drains:
                del self.links[link]
            elif not self._streams.waiting(link) and not lib.pn_link_queued(link.raw):
                del self.links[link]
                if not lib.pn_link_credit(link.raw) and not ASSERTS:  # it answers only where credit is left over
                    lib.pn_link_flow(link.raw, 1)
                lib.pn_link_drained(link.raw)
                answered = True
        return answered


class ClosingLinks:
    """A closing link was ended by the peer, and its messages are not all settled: the answer waits for that."""

    __slots__ = ("_kept", "_links")

    def __init__(self, kept: "RetainedLinks") -> None:
        self._kept = kept
        self._links: dict[Any, tuple[Link, Answer]] = {}

    def end(self, raw: Any, link: "Link | None", answer: Answer) -> None:
        """Answer the end of a link at once, or when it leaves."""
        if link is not None and link.lingers:
            self._links[raw] = link, answer
        else:
            self._bury(raw, answer)

    def leave(self, raw: Any) -> None:
        """Answer the end of a link that lingered."""
        if lingering := self._links.pop(raw, None):
            self._bury(raw, lingering[1])

    def drop(self, raws: Iterable[Any] | None = None) -> None:
        """Note that links are gone, or that all are."""
        for raw in tuple(self._links if raws is None else raws):
            if lingering := self._links.pop(raw, None):
                lingering[0].lingers = False

    def _bury(self, raw: Any, answer: Answer) -> None:
        self._kept.remove(raw)
        answer(raw)
        lib.pn_link_free(raw)
