"""The commands as a shell sees them: what they print, and how they exit."""

import asyncio
import contextlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
import redis
import typer
from rich.console import Console
from typer.core import TyperGroup

import headgate
from headgate import policy
from headgate.redis.keys import index_keys
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.cli.watching import look
from headgate_coordinator.operate import top
from tests.demo.command import Running, assert_one_line, environment, in_a_terminal, run
from tests.support.extent import share_of
from tests.support.waiting import wait_for, wait_until

NOBODY = "redis://:s3cret@127.0.0.1:1"  # nothing listens on port 1


@pytest.fixture
async def orders(redis_url: str, namespace: str) -> AsyncIterator[str]:
    """A queue of 64 KiB with three messages of 10000 bytes and a waiting sender."""
    async with headgate.connect(redis_url, namespace=namespace) as client:
        await client.apply("orders", limit="32KiB")
        async with client.session("teller") as session:
            producer = await session.producer("orders")
            for _ in range(3):
                await producer.send(b"x" * 10_000)
            waiting = asyncio.create_task(producer.send(b"x" * 10_000))
            await wait_until(lambda: _is_blocked(client), description="a sender waits")
            yield namespace
            waiting.cancel()
        await client.remove("orders")
    with redis.Redis.from_url(redis_url) as plain:
        for key in plain.scan_iter(match=f"hg:{{{namespace}/*"):
            plain.delete(key)  # receipts outlive their session


async def _is_blocked(client: headgate.Client) -> bool:
    return (await client.explain("orders")).state == "blocked"


async def _run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(lambda: run(*arguments, **env))


@pytest.mark.one_server
async def test_explain_says_why(redis_url: str, orders: str) -> None:
    done = await _run("explain", "orders", "--redis", redis_url, "--namespace", orders)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "orders (queue): blocked: the limit of 32768 bytes is reached: no consumer is attached"
    )


@pytest.mark.one_server
async def test_explain_in_json_from_the_environment(redis_url: str, orders: str) -> None:
    done = await _run("explain", "orders", "--json", HEADGATE_URL=redis_url, HEADGATE_NAMESPACE=orders)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["state"], told["binding"]["limit"], told["blocked"]) == ("blocked", 32768, 1)


@pytest.mark.one_server
async def test_status_shows_every_destination(redis_url: str, orders: str) -> None:
    async with headgate.connect(redis_url, namespace=orders) as client:
        await client.apply("emails", kind="bucket", rate="90/min", burst=7)
        done = await _run("status", "--redis", redis_url, "--namespace", orders)
        in_json = await _run("status", "--redis", redis_url, "--namespace", orders, "--json")
        await client.remove("emails")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert rows[0] == ["emails", "bucket", "open", "1.5/s"]
    assert rows[1][:7] == ["orders", "queue", "blocked", "29.3", "KiB", "32.0", "KiB"]
    assert done.stdout.splitlines()[-1].startswith("orders: the limit of 32768 bytes is reached: no consumer")
    assert [told["destination"] for told in json.loads(in_json.stdout)] == ["emails", "orders"]


@pytest.mark.one_server
def test_nothing_there_is_not_an_error(redis_url: str, namespace: str) -> None:
    for command in ("status", "audit"):
        done = run(command, "--redis", redis_url, "--namespace", namespace)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"There are no destinations in namespace {namespace!r}.\n"
        assert json.loads(run(command, "--json", "--redis", redis_url, "--namespace", namespace).stdout) == []


@pytest.mark.one_server
async def test_audit_finds_a_wrong_counter_and_repairs_it(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    assert (await _run("audit", *place)).returncode == 0
    with redis.Redis.from_url(redis_url) as plain:
        plain.hset(f"hg:{{{orders}/orders}}", "pending_messages", 4)
    found = await _run("audit", *place)
    assert found.returncode == 1
    assert "pending_messages is 4, counted 3" in found.stdout
    assert "1 destination recounted: 1 not in order." in found.stdout
    repaired = await _run("audit", "--repair", "--json", *place)
    assert repaired.returncode == 0
    assert [finding["verdict"] for finding in json.loads(repaired.stdout)] == ["repaired"]
    assert (await _run("audit", *place)).returncode == 0


@pytest.mark.one_server
async def test_audit_takes_out_what_nobody_can_read_of_the_index(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    wildcards = index_keys(orders)[0]
    with redis.Redis.from_url(redis_url) as plain:
        plain.hset(wildcards, "inbox..x s", "durable=1 holders=1 ttl=10000")
        found = await _run("audit", *place)
        assert (found.returncode, "'inbox..x s' cannot be read" in found.stdout) == (1, True), found
        repaired = await _run("audit", "--repair", "--json", *place)
        assert json.loads(repaired.stdout)[-1] == {"index": "inbox..x s", "verdict": "repaired"}
        assert plain.hlen(wildcards) == 0


async def test_audit_reports_each_counter_that_it_repairs(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    async with headgate.connect(redis_url, namespace=orders) as client, client.session("out") as session:
        await client.apply("counts", limit="1MB")
        await (await session.producer("counts")).send(b"x" * 100)  # nobody is at work there afterwards
    wrong = {
        "pending_bytes": 1,
        "pending_messages": 2,
        "leased_bytes": 3,
        "leased_messages": 4,
        "blocked": 5,
        "weight": 6,
        "active": 7,
    }
    with redis.Redis.from_url(redis_url) as plain:
        right = dict(zip(wrong, plain.hmget(f"hg:{{{orders}/counts}}", *wrong), strict=True))
        plain.hset(f"hg:{{{orders}/counts}}", mapping=wrong)
    done = await _run("audit", "--repair", *place)
    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    for name, value in wrong.items():
        assert f"{name} is {value}, counted {int(right[name])}" in told
    assert "2 destinations recounted: all in order." in told
    assert (await _run("audit", *place)).returncode == 0


@pytest.mark.one_server
async def test_explain_for_one_session_and_one_consumer(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    async with headgate.connect(redis_url, namespace=orders) as client, client.session("in") as session:
        consumer = await session.consumer("orders", window="paused")
        (waiter,) = (await client.explain("orders")).waiters
        as_producer = await _run("explain", "orders", "--producer", waiter.session, *place)
        as_consumer = await _run("explain", "orders", "--consumer", consumer.id, "--json", *place)
        nobody = await _run("explain", "orders", "--producer", "nobody", *place)
        await consumer.close()
    assert f"  {waiter.session}: place 1 in line, holds credit for " in as_producer.stdout
    assert json.loads(as_consumer.stdout)["cause"] == "consumer-paused"
    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert_one_line(nobody.stderr, "session 'nobody' neither sends to 'orders' nor consumes it")


@pytest.mark.one_server
async def test_status_is_sorted_as_asked(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    async with headgate.connect(redis_url, namespace=orders) as client:
        await client.apply("a-free-one", limit=1000)
        by_name, by_blocked = await _run("status", *place), await _run("status", "--sort", "blocked", *place)
        wrong = await _run("status", "--sort", "beauty", *place)
        await client.remove("a-free-one")
    assert [line.split()[0] for line in by_name.stdout.splitlines()[2:4]] == ["a-free-one", "orders"]
    assert [line.split()[0] for line in by_blocked.stdout.splitlines()[2:4]] == ["orders", "a-free-one"]
    assert wrong.returncode == 2
    assert_one_line(wrong.stderr, "--sort 'beauty': use one of name, pending")


@pytest.mark.one_server
async def test_status_and_top_show_memory_and_stores_apart(redis_url: str, orders: str, tmp_path: Path) -> None:
    """Mutants: stores are not listed; what is spooled counts as pending."""
    place = ("--redis", redis_url, "--namespace", orders)
    before = await _run("status", *place)
    assert "spooled" not in before.stdout, "who does not spool has no column for it"
    async with headgate.connect(redis_url, namespace=orders) as client, client.session("out") as session:
        await client.set_store("disk", f"file://{tmp_path}", limit="1MiB", segment="4KiB")
        await client.apply("large", limit="4KB", when_full="spool", store="disk")
        producer = await session.producer("large")
        for _ in range(12):
            await producer.send(b"x" * 1000)
        (store,) = await client.stores()
        references = int((await client.explain("large")).fields["reference_bytes"])
        told = await asyncio.gather(_run("status", *place), _run("top", *place), _run("explain", "large", *place))
        as_json = await _run("status", "--json", *place)
        await client.purge("large")
        await client.remove("large")
    status, top, explain = (done.stdout for done in told)
    for picture in (status, top):
        (row,) = (line.split() for line in picture.splitlines() if line.split()[:1] == ["large"])
        held = [f"{store.held / 1024:.2f}", "KiB"]
        assert row[7:9] == held, row
        assert row[9:11] == [str(references), "B"], row
        (line,) = (line.split() for line in picture.splitlines() if line.split()[:1] == ["disk"])
        assert line[1:5] == [*held, "1.00", "MiB"]
        assert line[7:9] == [str(store.segments), "0"], line
    assert "store disk: " in explain
    (large,) = (one for one in json.loads(as_json.stdout) if one["destination"] == "large")
    assert large["store"]["here"] == store.held


@pytest.mark.one_server
async def test_status_and_top_show_pools_and_who_holds_them(redis_url: str, orders: str) -> None:
    """Mutants: pools are not listed; a gate speaks of bytes."""
    place = ("--redis", redis_url, "--namespace", orders)
    async with headgate.connect(redis_url, namespace=orders) as client, client.session("out") as session:
        await client.set_pool("memory", limit="1MiB")
        await client.apply("shared", pools="memory")
        await client.apply("calls", kind="gate", limit=8)
        await (await session.producer("shared", window=10)).send(b"x" * 1000)
        status, top = await asyncio.gather(_run("status", *place), _run("top", *place))
        await client.purge("shared")
        for name in ("shared", "calls"):
            await client.remove(name)
        await client.remove_pool("memory")
    for picture in (status.stdout, top.stdout):
        (line,) = (line.split() for line in picture.splitlines() if line.split()[:1] == ["memory"])
        assert line[5:11] == ["1.00", "MiB", "0", "%", "1", "0"], line
        assert line[11] == "shared"
        (line,) = (line.split() for line in picture.splitlines() if line.split()[:1] == ["calls"])
        assert line[1:5] == ["gate", "open", "0", "8"], line


@pytest.mark.one_server
@pytest.mark.parametrize("width", [60, 80, 120])
async def test_a_picture_names_all_there_is_however_narrow_it_is(
    redis_url: str, cleanup_namespace: str, width: int
) -> None:
    """Mutants: links are not read; at 60 columns the names of destinations have no room."""
    bridge = '[[bridge]]\nname = "to billing"\nfrom = "orders"\nto = "billing"\n'
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(policy.loads(bridge))
        await client.set_pool("memory", limit="1MiB")
        await client.set_store("disk", "memory://cli", limit="1MiB")
        await client.apply("orders", limit="1MiB", pools="memory")
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4}})
        picture = await look(client)
    text = io.StringIO()
    Console(width=width, file=text).print(
        top.frame(picture, cleanup_namespace, "blocked", width=width, most=40, keys=True)
    )
    for words in (
        r"^orders +(queue +)?open ",
        r"^llm +slots",
        r"^memory ",
        r"^disk ",
        r"^orders > billing .*nobody",
    ):
        assert re.search(words, text.getvalue(), re.MULTILINE), (words, text.getvalue())
    assert max(map(len, text.getvalue().splitlines())) <= width


@pytest.mark.one_server
async def test_top_prints_one_picture_into_a_pipe(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    for more in ((), ("--once",)):
        done = await _run("top", *more, *place)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0].startswith(f"headgate {orders}  1 destination, 1 not open, 1 waiting, by blocked")
        assert lines[-1].startswith("orders: the limit of 32768 bytes is reached: no consumer is attached")
        assert "\x1b" not in done.stdout


@pytest.mark.one_server
@pytest.mark.parametrize("key", share_of([b"pxq", b"\x03"], 2), ids=share_of(["q", "ctrl-c"], 2))
async def test_top_watches_until_a_key_ends_it(redis_url: str, orders: str, key: bytes) -> None:
    code, seen, after = await asyncio.to_thread(
        in_a_terminal, ["top", "--redis", redis_url, "--namespace", orders], key
    )
    assert code == 0
    assert "1 waiting, by blocked" in seen
    assert "q quit" in seen
    assert ("by pending" in after) == key.startswith(b"p")
    assert after.endswith("\x1b[?1049l")  # the screen is as it was
    assert "Traceback" not in after


@pytest.mark.one_server
async def test_block_unblock_and_purge(redis_url: str, orders: str) -> None:
    place = ("--redis", redis_url, "--namespace", orders)
    blocked = await _run("block", "orders", "--reason", "disk is full", *place)
    assert (blocked.returncode, blocked.stdout) == (
        0,
        "orders is stopped: disk is full. `headgate unblock orders` lets it go on.\n",
    )
    assert "stopped: it was stopped by hand: disk is full" in (await _run("explain", "orders", *place)).stdout
    unprintable = await _run("block", "orders", "--reason", "disk\nis full", *place)
    assert unprintable.returncode == 2
    assert_one_line(unprintable.stderr, "reason: 'disk\\nis full'; use 1 to 200 printable characters")
    unblocked = await _run("unblock", "orders", *place)
    assert (unblocked.returncode, unblocked.stdout.split(";")[0]) == (0, "orders is not stopped")
    purged = await _run("purge", "orders", *place)
    assert (purged.returncode, purged.stdout) == (0, "Removed 3 messages of orders.\n")
    for arguments in (("block", "none", "--reason", "x"), ("unblock", "none"), ("purge", "none"), ("explain", "none")):
        done = await _run(*arguments, *place)
        assert (done.returncode, done.stdout) == (2, "")
        assert_one_line(done.stderr, "there is no destination 'none'")


@pytest.mark.one_server
async def test_single_messages(redis_url: str, orders: str) -> None:
    """Mutant: `move` does not say why it did nothing."""
    place = ("--redis", redis_url, "--namespace", orders)
    listed = await _run("message", "list", "orders", *place)
    assert listed.returncode == 0, listed.stderr
    first, second, third = (line.split()[0] for line in listed.stdout.splitlines())
    (one,) = json.loads((await _run("message", "list", "orders", "--after", second, "--json", *place)).stdout)
    assert one["id"] == third
    deleted = await _run("message", "delete", "orders", first, *place)
    assert (deleted.returncode, deleted.stdout) == (0, f"Deleted message {first} of orders.\n")
    refused = await _run("message", "move", "orders", second, "none", *place)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert_one_line(refused.stderr, "there is no destination 'none'")
    gone = await _run("message", "delete", "orders", first, *place)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert_one_line(gone.stderr, "list what is there again")


@pytest.mark.one_server
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "nope"), "there is no destination 'nope' in namespace 'default'; headgate status lists them"),
        (("explain", "a{b"), "'{'"),
        (("status", "--namespace", "No Such"), "use 1 to 63 of a-z"),
        (("demo", "--limit", "much"), "'much' is not a size"),
        (("demo", "--limit", "1KiB"), "use 32.0 KiB or more"),
        (("demo", "--input", "/no/such/place"), "no such file or directory"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(redis_url: str, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, HEADGATE_URL=redis_url)
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_line(done.stderr, words)


@pytest.mark.parametrize("command", [("status",), ("explain", "orders"), ("audit",)])
def test_without_a_url_there_is_nothing_to_look_at(command: tuple[str, ...]) -> None:
    done = run(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_line(done.stderr, "--redis URL", "HEADGATE_URL")


@pytest.mark.parametrize("command", [("status",), ("explain", "orders"), ("audit",), ("demo",)])
def test_a_url_of_an_unknown_form(command: tuple[str, ...]) -> None:
    done = run(*command, "--redis", "http://:s3cret@localhost")
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_line(done.stderr, "'http' is unknown")
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("command", [("status",), ("explain", "orders"), ("audit",), ("demo",)])
def test_no_redis_there(command: tuple[str, ...]) -> None:
    done = run(*command, HEADGATE_URL=NOBODY)
    assert (done.returncode, done.stdout) == (3, "")
    assert_one_line(done.stderr, "127.0.0.1:1", "; see that it runs, that its URL is right (--redis or HEADGATE_URL)")
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("explain",),
        ("up", "--port", "99999"),
        ("up", "--amqp-port", "99999"),
        ("demo", "--seconds", "1"),
        ("block", "x"),
        ("top", "--interval", "0"),
        ("top", "--interval", "2h"),
        ("node", "--ttl", "500ms"),
        ("node", "--drain", "soon"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: headgate" in done.stderr


def test_each_command_is_made_without_the_others() -> None:
    """Mutant: a command whose module is named wrong, which only those would see who call it."""
    every = cast(TyperGroup, typer.main.get_command(command_line())).commands
    assert {"node", "status", "policy", "pipeline", "acl"} <= every.keys()
    for name in every:
        alone = cast(TyperGroup, typer.main.get_command(command_line(name))).commands
        assert list(alone) == [name]
        assert [option.name for option in alone[name].params] == [option.name for option in every[name].params]


def test_version() -> None:
    assert run("--version").stdout == f"headgate {headgate.__version__}\n"


def test_a_short_command_looks_for_no_garbage() -> None:
    """Mutants: among all that it imports; and as it ends, which took a third of its time."""
    code = """if True:
        import atexit, gc
        collections = []
        gc.callbacks.append(lambda phase, _: collections.append(phase))
        atexit.register(lambda: print(len(collections), len(gc.get_objects()), gc.isenabled()))
        from headgate_coordinator.cli.entry import main
        main()
    """
    command = [sys.executable, "-c", code, "--version"]
    _, shown = subprocess.check_output(command, env=environment(), text=True, timeout=240).splitlines()
    collections, looked_at_last, enabled = shown.split()
    assert int(collections) < 100, "it was 334"
    assert (looked_at_last, enabled) == ("0", "True")


@pytest.mark.parametrize("missing", share_of(["typer", "rich"], 2))
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from headgate_coordinator.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_line(done.stderr, "pip install 'headgate[node]'")


@pytest.fixture
def up(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running("up", *request.param)
    yield running
    with running.process:
        running.process.kill()
    wait_for(lambda: not running.left(), description="the end of all that it started")


@pytest.mark.whole  # the one below is told by another signal
@pytest.mark.parametrize("up", [("--json",)], indirect=True)
def test_up_serves_until_it_is_told_to_stop(up: Running) -> None:
    told = json.loads(up.next_line())
    with redis.Redis.from_url(told["url"]) as client:
        assert client.ping()
    assert told["redis_cli"].endswith(f"-s {told['directory']}/redis.sock")
    up.process.terminate()
    _, stderr = up.process.communicate(timeout=80)
    assert (up.process.returncode, stderr) == (0, "")
    assert not Path(told["directory"]).exists()
    assert not up.left()


@pytest.mark.parametrize("up", [("--port", "0", "--namespace", "shop")], indirect=True)
def test_up_says_how_to_use_it(up: Running) -> None:
    text = up.read_until("Ctrl-C stops it.")
    url = text.splitlines()[0].removeprefix("Redis runs at ")
    port = url.removeprefix("redis://127.0.0.1:").removesuffix("/0")
    assert f"-p {port}\n" in text
    assert f"export HEADGATE_URL={url} HEADGATE_NAMESPACE=" in text
    assert "HGETALL 'hg:{shop/orders}'" in text
    assert run("status", "--redis", url).returncode == 0


@pytest.mark.parametrize("up", [("--json",)], indirect=True)
def test_up_has_a_node_and_its_page(up: Running) -> None:
    told = json.loads(up.next_line())
    with redis.Redis.from_url(told["url"]) as client:
        assert client.ping()
    assert told["redis_cli"].endswith(f"-s {told['directory']}/redis.sock")
    assert (told["no_node"], told["namespace"]) == (None, "default")
    host, port = told["amqp"].removeprefix("amqp://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00")
        assert peer.recv(8, socket.MSG_WAITALL) == b"AMQP\x03\x01\x00\x00"
        with urllib.request.urlopen(f"{told['page']}ready", timeout=10) as ready:
            assert ready.status == 200
        up.process.send_signal(signal.SIGINT)
        _, stderr = up.process.communicate(timeout=80)  # although the client does not go
    assert (up.process.returncode, stderr) == (0, "")
    assert not Path(told["directory"]).exists()
    assert not up.left()


@pytest.mark.soak
def test_up_takes_the_next_port_when_the_usual_one_is_taken(up_ports: Running) -> None:
    text = up_ports.read_until("Ctrl-C stops it.")
    assert "(instead of 5672)" in text
    assert "(instead of 8161)" in text


@pytest.fixture
def up_ports() -> Iterator[Running]:
    with contextlib.ExitStack() as taken:
        for port in (5672, 8161):
            with contextlib.suppress(OSError):  # somebody has it already: just as well
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        running = Running("up")
        yield running
        with running.process:
            running.process.send_signal(signal.SIGINT)
            running.process.communicate(timeout=80)


@pytest.mark.parametrize("option", ["--amqp-port", "--admin-port"])
def test_up_listens_at_the_port_that_is_given_or_not_at_all(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("up", option, str(port))
    assert (done.returncode, done.stdout) == (2, "")
    assert_one_line(done.stderr, "cannot listen", f":{port}: ")


@pytest.mark.whole
@pytest.mark.parametrize(("options", "words"), [(("--no-node",), "--no-node"), ((), "headgate[amqp]")])
def test_up_without_a_node_says_why(options: tuple[str, ...], words: str, without_amqp: dict[str, str]) -> None:
    running = Running("up", *options, **({} if options else without_amqp))
    try:
        first, second = running.next_line(), running.next_line()
        assert first.startswith("Redis runs at ")
        assert second.startswith("No node runs: ")
        assert words in second
        assert running.read_until("Ctrl-C stops it.").startswith("\n")
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.process.communicate(timeout=80)
    assert running.process.returncode == 0


@pytest.mark.whole
@pytest.mark.parametrize("up", [("--json",)], indirect=True)
def test_up_ends_when_its_redis_does(up: Running) -> None:
    told = json.loads(up.next_line())
    with redis.Redis.from_url(told["url"]) as client:
        client.shutdown(nosave=True)
    _, stderr = up.process.communicate(timeout=80)
    assert up.process.returncode == 3
    assert_one_line(stderr, "has ended")


def test_up_on_a_port_that_is_taken() -> None:
    """Mutant: the log of the Redis that could not start is printed, and advice on a URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("up", "--port", place.rpartition(":")[2])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"headgate: Redis cannot listen at {place}: it is taken, or not free to all; give another\n"
