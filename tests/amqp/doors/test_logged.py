"""What clients say about themselves, as it is logged."""

import io
import logging

import pytest

from headgate.amqp.sasl import HEADER, SaslClient
from headgate.core.printable import printable
from headgate.errors import AccessDenied
from headgate_coordinator.logs import FORMAT, OneLine
from tests.amqp.client import rude
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.raw import attach, begin, described, frame, opening, text
from tests.support.waiting import wait_until

FORGED = "x\n2026-01-01 00:00:00,000 WARNING headgate: 9000 messages of payroll were removed\x1b[31m\u202e\x9b1m"


def lines_of(node: NodeProcess, about: str) -> list[str]:
    return [line for line in node.errors.splitlines() if about in line]


@pytest.mark.one_server
@pytest.mark.parametrize("where", ["container", "close", "link", "address"])
async def test_nothing_that_a_client_says_begins_a_line_or_reaches_a_terminal(node: NodeProcess, where: str) -> None:
    async with rude(node.port) as guest:
        if where == "container":
            await guest.say(opening(FORGED) + begin() + attach("s", 0, address="a.*"))
            await guest.until(b"amqp:invalid-field")
        elif where == "close":
            error = described(0x1D, [b"\xa3\x06amqp:x", text(FORGED)])
            await guest.say(opening() + frame(0x18, [error]))
            await guest.end()
        else:
            named = attach(FORGED, 0, address="a.*") if where == "link" else attach("s", 0, address=FORGED + ".*")
            await guest.greet(named)
            await guest.until(b"amqp:invalid-field")
        await wait_until(lambda: lines_of(node, "payroll"))
    assert all("\\n2026" in line for line in lines_of(node, "payroll"))
    assert not [line for line in node.errors.splitlines() if line.startswith("2026-01-01")]
    assert not set("\x1b\u202e\x9b") & set(node.errors)


@pytest.mark.one_server
async def test_what_is_long_is_cut(node: NodeProcess) -> None:
    async with rude(node.port) as guest:
        await guest.say(opening("c" * 20_000) + begin() + attach("n" * 3000, 0, address="a" * 10_000 + ".*"))
        await guest.until(b"amqp:invalid-field")
        await wait_until(lambda: lines_of(node, "ccc"))
    assert all(len(line) < 5000 for line in node.errors.splitlines())


@pytest.mark.one_server
async def test_whoever_hangs_up_or_is_silent_is_told_of_in_one_line(start_node: StartNode) -> None:
    node = start_node("--idle", "1")
    async with rude(node.port) as guest:
        await (await guest.greet()).until(b"\x00S\x11")
    await wait_until(lambda: lines_of(node, "hung up without a close"))
    async with rude(node.port) as guest:
        await (await guest.greet()).end()
    await wait_until(lambda: lines_of(node, "silent"))
    assert len(lines_of(node, "raw at")) == 2
    assert "framing-error" not in node.errors


@pytest.mark.one_server
async def test_a_refused_filter_and_a_refused_service_make_a_line(node: NodeProcess) -> None:
    filters = b"\xc1\x05\x02\xa3\x01f\x40"
    async with rude(node.port) as guest:
        await guest.greet(attach("r", 0, receives=True, filters=filters), attach("t", 1, address="$cbs"))
        await guest.until(b"sign in by SASL")
        await wait_until(lambda: lines_of(node, "link r is refused") and lines_of(node, "link t is refused"))


def test_each_record_is_a_line_and_a_traceback_is_indented() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine(FORMAT))
    try:
        int(FORGED)
    except ValueError as error:
        handler.handle(logging.LogRecord("n", logging.ERROR, "f", 1, "a\nb %s", (FORGED,), (type(error), error, None)))
    first, *more = stream.getvalue().splitlines()
    assert "a\\nb x\\n2026" in first
    assert more
    assert all(line.startswith("  ") for line in more)
    assert stream.getvalue().replace("\n", "").isprintable()


def test_text_of_others_is_printable() -> None:
    assert printable("a\0b\nä") == "a\\x00b\\nä"
    assert printable("x" * 400, 10) == "x" * 10 + "..."


@pytest.mark.parametrize("name", [b"\xff\xfe", b"PLAIN\n\x1b[31m"])
def test_a_mechanism_whose_name_is_no_text_is_no_way_to_sign_in(name: bytes) -> None:
    client = SaslClient("me", "secret", "localhost")
    body = described(0x40, [b"\xa3" + bytes([len(name)]) + name])
    sasl = frame(0x40, [])[:8]
    with pytest.raises(AccessDenied) as caught:
        client.feed(HEADER + (8 + len(body)).to_bytes(4) + sasl[4:5] + b"\x01" + sasl[6:] + body)
    assert str(caught.value).isprintable()
