"""What the selector of a client's link may cost the node."""

import pytest

from headgate import InvalidValue
from headgate import message as stored_form
from headgate.core.amqp.message import AmqpMessage, encode
from headgate_coordinator.node.ends import selecting
from headgate_coordinator.node.ends.selecting import LONGEST, MOST_READ, LinkSelector
from tests.support.waiting import wait_until


def message(**headers: str) -> bytes:
    return encode(AmqpMessage(kind="data", body=b"x" * (2 * MOST_READ), application_properties=headers))


async def test_one_that_takes_long_ends_its_link_and_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: it goes on for each message of the batch."""
    ended: list[str] = []
    selects = LinkSelector("a LIKE '%xxy'", lambda condition, _: ended.append(condition))
    assert not selects(message(a="xxx"))
    monkeypatch.setattr(selecting, "MOST_TIME", 0.0)
    assert not selects(message(a="xxx"))
    assert selects(message(a="xxx"))
    await wait_until(lambda: ended == ["amqp:resource-limit-exceeded"])


@pytest.mark.parametrize("stored", [message(a="x" * MOST_READ), stored_form.encode("b", {"a": "x" * MOST_READ})])
def test_a_message_with_much_before_its_body_is_for_every_receiver(stored: bytes) -> None:
    """Mutant: all of it is read."""
    selects = LinkSelector("a = 'y'", lambda _, __: None)
    assert selects(stored)
    assert not selects(message(a="x"))


def test_a_long_one_is_refused() -> None:
    with pytest.raises(InvalidValue, match="1024"):
        LinkSelector(f"a = '{'x' * LONGEST}'", lambda _, __: None)
