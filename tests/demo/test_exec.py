"""`headgate exec`: a command that runs while a gate or a limiter admits it."""

import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from tests.demo.command import assert_one_line, environment, run
from tests.support.forked import PIPE, Forked

pytestmark = pytest.mark.one_server
TELLS = "import sys, time; print('in', flush=True); time.sleep(600)"


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}, "calls": {"rate": "1000/s"}})
        await client.apply("db", kind="gate", limit=2)
        yield client


@pytest.fixture
def where(redis_url: str, cleanup_namespace: str) -> tuple[str, ...]:
    return ("--redis", redis_url, "--namespace", cleanup_namespace)


async def free(client: headgate.Client) -> bool:
    levels = await LimiterStore(client.store.server).levels(Address.of(client.namespace, "llm"), most=100)
    return levels is not None and levels.holds == {}


@pytest.mark.parametrize("admits", [("--gate", "db", "--size", "2"), ("--limiter", "llm", "--amount", "slots=1")])
async def test_it_ends_as_the_command_does(
    client: headgate.Client, where: tuple[str, ...], admits: tuple[str, ...]
) -> None:
    program = "import sys; print(sys.stdin.read(), end=''); sys.exit(7)"
    done = run("exec", *admits, *where, "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    again = run("exec", *admits, *where, "--wait", "20", "--", "/bin/sh", "-c", "kill -9 $$")
    assert again.returncode == 128 + 9
    assert await free(client), "it was free at once"


async def test_a_signal_goes_to_the_command_and_what_a_killed_one_held_is_free_after_its_ttl(
    client: headgate.Client, where: tuple[str, ...]
) -> None:
    admits = ("exec", "--limiter", "llm", "--amount", "slots=1", "--ttl", "4", *where)
    for number in (signal.SIGTERM, signal.SIGKILL):
        one = Forked(
            "headgate_coordinator", *admits, "--", sys.executable, "-c", TELLS, environment=environment(), stdout=PIPE
        )
        try:
            assert one.stdout
            assert one.stdout.readline() == "in\n"
            assert not await free(client)
            late = run(*admits, "--wait", "0", "--", "true")
            assert late.returncode == 75
            assert_one_line(late.stderr, "true was not run")
        finally:
            one.send_signal(number)
            code = one.wait()
            one.stdout.close()  # type: ignore[union-attr]  # it is a pipe
        assert code == (128 + 15 if number is signal.SIGTERM else -9)
        assert run(*admits, "--wait", "60", "--", "true").returncode == 0, "others have it then"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--gate", "db", "--", "no-such-command"), 127, "there is no command 'no-such-command'"),
        (("--", "true"), 2, "say what admits it"),
        (("--gate", "db", "--limiter", "llm", "--amount", "slots=1", "--", "true"), 2, "say what admits it"),
        (("--gate", "db", "--amount", "slots=1", "--", "true"), 2, "say what admits it"),
        (("--limiter", "llm", "--", "true"), 2, "say what admits it"),
        (("--limiter", "llm", "--amount", "slots=1", "--size", "2", "--", "true"), 2, "say what admits it"),
        (("--limiter", "llm", "--amount", "slots", "--", "true"), 2, "<limit>=<number>"),
        (("--limiter", "llm", "--amount", "slot=1", "--", "true"), 2, "did you mean 'slots'"),
        (("--limiter", "llm", "--amount", "slots=2", "--", "true"), 1, "slots"),
        (("--limiter", "db", "--amount", "slots=1", "--", "true"), 2, "db"),
        (("--gate", "db", "--size", "many", "--", "true"), 2, "many"),
        (("--gate", "db", "--size", "0", "--", "true"), 2, "0 takes nothing"),
        (("--gate", "bd", "--", "true"), 0, "gate 'bd' has no limit"),
    ],
)
async def test_what_cannot_be_used_is_refused_in_one_line(
    client: headgate.Client, where: tuple[str, ...], words: tuple[str, ...], code: int, text: str
) -> None:
    del client
    done = run("exec", *where, *words)
    assert done.returncode == code, done.stderr
    assert_one_line(done.stderr, text)


async def test_a_file_that_cannot_be_run_is_told_in_one_line_and_holds_nothing(
    client: headgate.Client, where: tuple[str, ...], tmp_path: Path
) -> None:
    """Mutants: a traceback; 127, which says that there is no such file."""
    for name, text, mode, word in (
        ("interpreter", "#!/no/such/interpreter\n", 0o755, "see its first line"),
        ("program", "no program", 0o755, "see its first line"),
        ("text", "#!/bin/sh\n", 0o644, "chmod"),
    ):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
        done = run("exec", "--limiter", "llm", "--amount", "slots=1", *where, "--", str(file))
        assert done.returncode == 126, done.stderr
        assert_one_line(done.stderr, word)
        assert await free(client)


async def test_what_is_ignored_by_it_is_ignored_by_the_command(client: headgate.Client, where: tuple[str, ...]) -> None:
    """As with nohup. Mutant: handlers of ours for all signals, which the command does not inherit."""
    del client
    tells = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGHUP, signal.SIGTERM)])"
    words = " ".join(shlex.quote(word) for word in ("exec", "--gate", "db", *where, "--", sys.executable, "-c", tells))
    shell = f"trap '' HUP; exec {shlex.quote(sys.executable)} -m headgate_coordinator {words}"
    done = run("exec", "--gate", "db", *where, "--", "/bin/sh", "-c", shell)
    assert done.stdout == "[True, False]\n", done.stderr
