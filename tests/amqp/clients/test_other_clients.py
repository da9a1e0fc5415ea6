"""Libraries as their own documentation uses them, untuned, at nodes with all defaults; a program runs all its rows."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

import headgate
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import rhea_modules

pytestmark = pytest.mark.one_server
VENV = Path(__file__).parents[3] / ".venv"
LIMIT = 150
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""A program of seconds: to optimise it would take longer than it runs."""


def rows(command: list[str], on: dict[str, Callable[[], object]] | None = None) -> dict[str, str]:
    """What a program says of each of its rows. What it is waiting for is done when it says so."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        told: dict[str, str] = {}
        try:
            for line in program.stdout:
                name, result = json.loads(line)
                if act := (on or {}).get(name):
                    act()
                    program.stdin.write("\n")
                    program.stdin.flush()
                else:
                    told[name] = result
        finally:
            program.kill()
    return told


@pytest.mark.timeout(LIMIT)
async def test_go_amqp(node: NodeProcess, client: headgate.Client) -> None:
    program = VENV / "go-amqp" / "client"
    if not program.exists():
        pytest.skip("the client with go-amqp is not built: run `.ci/ensure-go-amqp`, which needs Go and its modules")
    await client.apply("go.priorities", kind="queue", fair_by="priority")
    assert await asyncio.to_thread(rows, [str(program), node.url]) == {
        "send, close, receive": "one two",
        "sender settle modes": "0 1 2",
        "receiver settle mode second": "one",
        "refused links": "amqp:not-allowed amqp:invalid-field amqp:not-implemented goes on",
        "drain": "one",
        "larger than the receiver takes": "amqp:link:message-size-exceeded 2000",
        "priorities of the header": "9 5 4 0",
        "a delay, a moment and none": "none early",
    }


@pytest.mark.timeout(LIMIT)
async def test_qpid_jms(start_node: StartNode, client: headgate.Client) -> None:
    folder = VENV / "qpid-jms"
    if shutil.which("java") is None or not (folder / "classes" / "Rows.class").exists():
        pytest.skip("Qpid JMS is not installed: run `.ci/ensure-qpid-jms`, which needs Maven and a compiler of Java")
    first, second = start_node(), start_node()
    classes = os.pathsep.join((f"{folder}/classes", f"{folder}/lib/*"))
    command = ["java", *JVM, "-Xmx256m", "-cp", classes, "Rows", str(first.port), str(second.port)]
    await client.apply("jms.priorities", kind="queue", fair_by="priority")
    told = await asyncio.to_thread(rows, command, {"kill the first": first.kill9})
    for row, refusal in (("a transacted session", "there are no transactions"), ("a selector", "selectors are for")):
        assert refusal in told.pop(row)
    assert told.pop("another selector").startswith(
        "nothing, red, nothing, blue, subscription 'both' of 'jms.reselected' has consumers with another selector"
    )
    subscription = told.pop("a durable subscription")
    assert subscription.startswith(
        "subscribe: nothing, come back: missed, subscribe: nothing, InvalidDestinationException"
    )
    assert told == {
        "send, close, receive": "one two",
        "sends that nobody waits for, then close": "one two three",
        "receiveNoWait": "3",
        "receiveNoWait with prefetch 0": "3",
        "receiveNoWait of large messages": "3",
        "receive with prefetch 0": "one two nothing",
        "a browser": "one two three",
        "what was prefetched": "4 1 1",
        "a shared subscription": "4",
        "a request over a temporary queue": "re: one, re: two, InvalidDestinationException",
        "a temporary topic": "to all, to all, InvalidDestinationException",
        "a selector of a topic": "red red nothing, red red",
        "priorities": "99 44 44 11 00",
        "a delivery delay": "now late in time",
        "failover": "before after",
    }


class HelloWorld(MessagingHandler):
    """The first program of Proton's documentation."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self.server = server
        self.body = ""

    def on_start(self, event) -> None:  # type: ignore[no-untyped-def]
        connection = event.container.connect(self.server)
        event.container.create_receiver(connection, "examples")
        event.container.create_sender(connection, "examples")

    def on_sendable(self, event) -> None:  # type: ignore[no-untyped-def]
        event.sender.send(Message(body="Hello World!"))
        event.sender.close()

    def on_message(self, event) -> None:  # type: ignore[no-untyped-def]
        self.body = event.message.body
        event.connection.close()


@pytest.mark.timeout(60)
async def test_the_first_program_of_proton(node: NodeProcess) -> None:
    hello = HelloWorld(node.url)
    await asyncio.to_thread(Container(hello).run)
    assert hello.body == "Hello World!"


RHEA = """
const container = require("rhea");
let accepted = 0;
container.on("message", (context) => {
  console.log(context.message.body, accepted);
  context.connection.close();
});
container.on("accepted", () => accepted++);
container.once("sendable", (context) => {
  context.sender.send({ body: "Hello World!" });
  context.sender.%s();
});
const connection = container.connect({ port: %d });
connection.open_receiver("examples");
connection.open_sender("examples");
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("goodbye", ["close", "detach"])
def test_the_first_program_of_rhea(node: NodeProcess, goodbye: str) -> None:
    source = RHEA % (goodbye, node.port)
    environment = os.environ | {"NODE_PATH": str(rhea_modules())}
    done = subprocess.run(
        ["node", "-"], input=source, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.stdout.split()[:2], done.stderr) == (["Hello", "World!"], "")
