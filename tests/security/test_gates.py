"""There are six gates where permissions are asked, and the threat model names tests that there are."""

import ast
import re
from pathlib import Path

from headgate_coordinator.node.ends.browser import LinkBrowser
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.ends.reattaching import SubscriptionCloser
from headgate_coordinator.node.ends.receiver import LinkReceiver
from headgate_coordinator.node.ends.relay import Relay
from headgate_coordinator.node.ends.sender import LinkSender
from headgate_coordinator.node.ends.temporary import TemporarySender
from headgate_coordinator.node.gateway.gateway import Gateway
from headgate_coordinator.node.gateway.replies import Replies
from headgate_coordinator.security import Action
from tests.support.extent import each

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "coordinator" / "headgate_coordinator" / "node"
NEEDS = {
    LinkSender: Action.PRODUCE,
    TemporarySender: Action.PRODUCE,
    LinkReceiver: Action.CONSUME,
    LinkBrowser: Action.BROWSE,
}
BY_THEMSELVES = {
    Relay: "each message",
    Gateway: "each call and channel",
    Replies: "nothing but answers to calls",
    SubscriptionCloser: "each topic and pattern, when it is looked at and when the subscription ends",
}


def every(of: type[LinkEnd]) -> set[type[LinkEnd]]:
    direct = set(of.__subclasses__())
    return direct.union(*map(every, direct))


def needs_of(end: type[LinkEnd]) -> Action | None:
    needed: Action | None = end.needs.fget(object.__new__(end))  # type: ignore[attr-defined]
    return needed


def test_each_end_of_a_link_is_behind_a_gate() -> None:
    """A new sort of link says what its user needs, or is named here with what asks for it instead."""
    assert {end for end in every(LinkEnd) if end.__module__.startswith("headgate")} == {*NEEDS, *BY_THEMSELVES}
    assert {end: needs_of(end) for end in NEEDS} == NEEDS
    assert {needs_of(end) for end in BY_THEMSELVES} == {None}
    for end in (Relay, Gateway):
        assert "look_again" in vars(end), f"{end.__name__} does not heed that users have changed"


def test_grants_are_read_at_one_place() -> None:
    """An identity is asked what it may by `Access` alone."""
    for module in (*NODE.rglob("*.py"), *(NODE.parent / "admin").rglob("*.py")):
        calls = [
            ast.unparse(call.func)
            for call in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("may", "why")
        ]
        allowed = r"(self\.)?identity\.may" if module.name == "access.py" else r"(self\._?)?(\w+\.)*_?access\.may"
        assert [call for call in calls if not re.fullmatch(allowed, call)] == [], module.name


NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))


@each(("path", "name"), NAMED)
def test_the_threat_model_names_tests_that_there_are(path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\(", text), f"{path} has no {name}"


def test_the_threat_model_names_a_test_for_each_sort_of_person() -> None:
    section = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## What is defended")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 12
    assert [row for row in rows if "`tests/" not in row] == []
