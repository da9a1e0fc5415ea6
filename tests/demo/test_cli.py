"""The commands as a shell sees them: what they print, and how they exit."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

import headgate
from tests.demo.command import Running, assert_one_line, environment, run
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
    assert rows[0] == ["emails", "bucket", "open", "1.5/s", "burst", "7"]
    assert rows[1][:7] == ["orders", "queue", "blocked", "32.0", "KiB", "29.3", "KiB"]
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
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "nope"), "there is no destination 'nope'"),
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
    assert_one_line(done.stderr, "127.0.0.1:1")
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("arguments", [("bogus",), ("explain",), ("up", "--port", "99999"), ("demo", "--seconds", "1")])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: headgate" in done.stderr


def test_version() -> None:
    assert run("--version").stdout == f"headgate {headgate.__version__}\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from headgate_coordinator.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=False
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


@pytest.mark.parametrize("up", [("--json",)], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_up_serves_until_it_is_told_to_stop(up: Running, how: signal.Signals) -> None:
    told = json.loads(up.next_line())
    with redis.Redis.from_url(told["url"]) as client:
        assert client.ping()
    assert told["redis_cli"].endswith(f"-s {told['directory']}/redis.sock")
    up.process.send_signal(how)
    _, stderr = up.process.communicate(timeout=20)
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
def test_up_ends_when_its_redis_does(up: Running) -> None:
    told = json.loads(up.next_line())
    with redis.Redis.from_url(told["url"]) as client:
        client.shutdown(nosave=True)
    _, stderr = up.process.communicate(timeout=20)
    assert up.process.returncode == 3
    assert_one_line(stderr, "has ended")


def test_up_on_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("up", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (3, "")
    assert_one_line(done.stderr)
