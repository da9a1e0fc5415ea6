"""Which stored messages a link forwards by its selector."""

from collections.abc import Callable
from typing import Final

from headgate.core.links.calls import Entry
from headgate.core.selector.messages import matcher
from headgate.core.selector.parser import Selector
from headgate.errors import MessageFormatError
from headgate_coordinator.links.rules import Refusal

NOT_SELECTED: Final = Refusal("selector")
UNREADABLE: Final = Refusal("unreadable", dead_letter=True)


def judge_by(selector: Selector) -> Callable[[Entry], Refusal | None]:
    """Return a judge for :class:`~headgate_coordinator.links.rules.Forwarding` that lets pass what a selector matches.

    A message that does not match goes nowhere (``selector``); an unreadable one is a dead letter (``unreadable``).
    """
    matches = matcher(selector)

    def judge(entry: Entry) -> Refusal | None:
        try:
            return None if matches(entry.body) else NOT_SELECTED
        except MessageFormatError:
            return UNREADABLE

    return judge
