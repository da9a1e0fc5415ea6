"""Checks of what was seen of the demo's links."""

from headgate_coordinator.demo.check import Check
from headgate_coordinator.demo.forwarding import Forwarded
from headgate_coordinator.operate.terminal import size


def link_checks(seen: Forwarded) -> list[Check]:
    """Return the checks of the links."""
    return [_forwarded(seen), _both_limits(seen)]


def _forwarded(seen: Forwarded) -> Check:
    wrong = [f"{len(got)} at {name}" for name, got in seen.arrived.items() if got != seen.sent]
    passed = False
    if seen.errors:
        sentence = "; ".join(seen.errors)
    elif not seen.sent:
        sentence = "nothing was published: no link subscribed to the topic in time"
    elif wrong:
        sentence = f"of {len(seen.sent)} messages of a topic, not each arrived once and in order: {', '.join(wrong)}"
    else:
        passed = True
        sentence = (
            f"{len(seen.sent)} messages of a topic came over a bridge and a route to another site, once, in order"
        )
    return Check("forwarded", passed, sentence)


def _both_limits(seen: Forwarded) -> Check:
    over = [f"{name} {peak}" for name, peak in seen.peaks.items() if peak > seen.limit]
    passed = False
    if over:
        sentence = f"the limit of {seen.limit} bytes was exceeded: {', '.join(over)}"
    elif not seen.waits:
        sentence = "the publisher never waited for the other site: limits were not put to the test"
    else:
        passed = True
        sentence = f"limits of {size(seen.limit)} held at both sites; {seen.waits} sends waited for room at the other"
    return Check("both limits", passed, sentence)
