"""The conformance kit: every row holds on a node, what does not hold is seen, and a wrong call ends with one error."""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import headgate
from headgate.policy import loads
from headgate_coordinator.security.document import GrantTable, User
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.conformance.rows import ROWS as STATEMENTS
from tests.kit.__main__ import main
from tests.kit.endpoint import Endpoint, Unusable
from tests.kit.report import HOLDS, KEPT, PRODUCTS, Tried
from tests.kit.rows import LIMIT, ROWS, TWO, Row, Seen
from tests.kit.starting import running
from tests.support import forked

pytestmark = pytest.mark.one_server
BROKERS = Path(__file__).parent / "brokers"
POLICY = (BROKERS / "headgate.toml").read_text()
PATIENCE = 60.0
SET_UP = [row for row in ROWS if row.needs in ("limited", "bands", "window", "two") and row.id != "A19"]
"""Rows that need settings or a user; transfers beyond the credit are an error without."""


async def set_up(client: headgate.Client) -> None:
    """Set up what the kit needs of a node."""
    await client.apply_policy(loads(POLICY))
    every = [*Action]
    known = {
        "anonymous": User(grants=[GrantTable(actions=every, match="#")]),
        TWO: User(password_hash=hashed(TWO), grants=[GrantTable(actions=every, match="kit.#")]),
    }
    await UserStore(client.store.server, client.namespace).change(lambda users: users.update(known))


async def kit(*arguments: str) -> tuple[int, str, str]:
    """Run the command as anybody does; returns its exit code and what it printed."""
    done = await asyncio.to_thread(forked.run, "tests.kit", *arguments, environment=os.environ, timeout=300)
    return done.returncode, done.stdout, done.stderr


async def tried(rows: Iterable[Row], node: NodeProcess) -> dict[str, Seen]:
    """Try some rows together, each of which waits for seconds in which nothing comes."""
    some = asyncio.Semaphore(7)

    async def one(row: Row) -> Seen:
        async with some:
            return await row.tried(Endpoint("127.0.0.1", node.port, patience=PATIENCE))

    async with asyncio.TaskGroup() as group:
        tasks = {row.id: group.create_task(one(row)) for row in rows}
    return {row: task.result() for row, task in tasks.items()}


@pytest.mark.longest
async def test_each_row_holds_on_a_node(client: headgate.Client, start_node: StartNode) -> None:
    await set_up(client)
    node = start_node("--plain-without-tls")
    assert {row: seen.what for row, seen in (await tried(ROWS, node)).items() if not seen.holds} == {}


@pytest.mark.longest
async def test_a_row_does_not_hold_where_the_destination_is_not_set_up_for_it(
    client: headgate.Client, node: NodeProcess
) -> None:
    """Mutants: a row that holds whatever is seen."""
    assert {row: seen.what for row, seen in (await tried(SET_UP, node)).items() if seen.holds} == {}


@pytest.mark.longest
async def test_a_line_a_row_and_a_verdict_or_json(client: headgate.Client, start_node: StartNode) -> None:
    await client.apply_policy(loads(POLICY))
    url = f"amqp://127.0.0.1:{start_node().port}"
    code, out, errors = await kit("--only", "h02,F09", "--patience", "60", url)
    assert (code, errors) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:-1]] == [["F09", "holds"], ["H02", "holds"]]
    assert re.fullmatch(r"Headgate \S+: 2 of 2 rows hold", out.splitlines()[-1])
    await client.apply("kit.h02", kind="queue", fair_by="priority")
    code, out, errors = await kit("--json", "--only", "H02,F09", "--patience", "60", url)
    assert code == 1
    rows = json.loads(out)["rows"]
    assert (rows["F09"]["verdict"], rows["H02"]["verdict"]) == ("holds", "differs")
    assert len(errors.splitlines()) == 3


def _closed() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "name an endpoint, or a broker with --start"),
        (["--start", "artemis", "amqp://localhost"], "name an endpoint, or a broker with --start"),
        (["--keep", "amqp://localhost"], "--home and --keep are for a broker"),
        (["--start", "artemis", "--keep", "--only", "A03"], "results are kept of all rows"),
        (["--start", "artemis", "--home", "/nowhere"], "there is no /nowhere/bin/artemis"),
        (["--start", "rabbitmq"], "no distribution of rabbitmq can be fetched; unpack its generic one"),
        (["http://localhost"], "no URL of an endpoint; write amqp://"),
        (["amqp://localhost:port"], "the port or the host is none"),
        (["amqp://localhost/queue"], "no URL of an endpoint"),
        (["amqp://bob:pa55@127.0.0.1:1"], "amqp://127.0.0.1:1 is not reached"),
        ([f"amqp://127.0.0.1:{_closed()}"], "is not reached: "),
        (["--only", "A03,X99", "amqp://localhost"], "no row is called X99; there are A03, A04"),
        (["--queue", "queues", "amqp://localhost"], "an address is written with one {} for the name, not queues"),
        (["--queue", "{}{}", "amqp://localhost"], "an address is written with one {}"),
        (["--queue", "{0}", "amqp://localhost"], "an address is written with one {}"),
        (["--patience", "0", "amqp://localhost"], "a patience is of seconds, above 0 and up to 600"),
        (["--patience", "nan", "amqp://localhost"], "a patience is of seconds"),
    ],
)
def test_a_wrong_call_ends_with_one_error(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines())) == ("", 1)
    assert told.err.startswith("kit: ")
    assert error in told.err
    assert "pa55" not in told.err


BROKER = """#!/bin/sh
exec {python} -c '
import os, socket, sys, time
text = open(sys.argv[2].removeprefix("xbean:file:")).read()
assert os.environ["ACTIVEMQ_DATA"] in text and sys.argv[1] == "console"
if {listens}:
    open({mark}, "w").write(str(os.getpid()))
    server = socket.create_server(("127.0.0.1", int(text.partition("amqp://127.0.0.1:")[2].partition(chr(34))[0])))
    time.sleep(600)
sys.exit("no memory")
' "$@"
"""


def test_a_broker_is_started_on_a_port_and_stopped(tmp_path: Path) -> None:
    """A stand-in that reads the configuration as the broker does. Mutants: it is left running, or its data is."""
    program, mark = tmp_path / "bin" / "activemq", tmp_path / "mark"
    program.parent.mkdir()
    program.write_text(BROKER.format(python=sys.executable, listens=True, mark=json.dumps(str(mark))))
    program.chmod(0o755)
    with running("activemq", tmp_path) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 10):
            pass
        pid = int(mark.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    program.write_text(BROKER.format(python=sys.executable, listens=False, mark=json.dumps(str(mark))))
    with pytest.raises(Unusable, match="activemq does not listen: no memory"), running("activemq", tmp_path):
        pass


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b""], ids=["ssh", "nothing"])
async def test_what_speaks_no_amqp_or_says_nothing_is_not_reached(
    said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    over = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        code = await asyncio.to_thread(main, ["--patience", "2", f"amqp://127.0.0.1:{port}"])
        await over.wait()
    told = capsys.readouterr()
    assert (code, told.out, len(told.err.splitlines())) == (2, "", 1), told.err


def test_help_says_what_destinations_have_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for kind in {row.needs for row in ROWS if row.needs}:
        assert f"kit.{kind}.*" in text
    assert f"{LIMIT:,} bytes" in text


def test_a_password_is_in_no_repr() -> None:
    endpoint = Endpoint.parse("amqp://bob:pa55%40@localhost")
    assert (endpoint.user, endpoint.password, endpoint.port) == ("bob", "pa55@", 5672)
    assert "pa55" not in f"{endpoint!r}{endpoint}"
    with pytest.raises(Unusable):
        Endpoint.parse("amqp://")


def test_rows_are_statements_of_the_page_and_results_are_kept_of_each() -> None:
    assert {row.id for row in ROWS} <= {row.id for row in STATEMENTS}
    for name in PRODUCTS:
        tried = Tried.load(KEPT / f"{name}.json")
        wanted = {row.id for row in ROWS if row.needs != "topic" or name != "rabbitmq"}
        assert set(tried.results) == wanted, name
    declared = {queue["name"] for queue in json.loads((BROKERS / "rabbitmq.json").read_text())["queues"]}
    assert {row.name for row in ROWS if row.needs != "topic"} == declared - {"kit.none", "kit.free.c01", "bench-0"}
    assert {result.verdict for result in Tried.load(KEPT / "headgate.json").results.values()} == {HOLDS}
