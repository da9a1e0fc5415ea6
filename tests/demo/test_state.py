"""`headgate state`: a limiter as operators see it."""

import json

import pytest

import headgate
from tests.demo.command import assert_one_line, run


@pytest.mark.one_server
async def test_it_shows_what_is_taken_and_who_has_most(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: holds and waiters of a key are not told apart."""
    command = ["state", "llm", "--redis", redis_url, "--namespace", cleanup_namespace]
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        limits = {"requests": {"rate": "5/min"}, "slots": {"at_once": 3}}
        await client.apply("llm", kind="limiter", limits=limits, key_limits={"slots": {"at_once": 2}})
        async with client.session("shop") as session:
            llm = await session.limiter("llm", in_hand=False)
            holds = [await llm.admit(requests=1, slots=1, key="tenant 7") for _ in range(2)]
            shown = run(*command, "--key", "tenant 7")
            assert shown.returncode == 0, shown.stderr
            rows = [line.split() for line in shown.stdout.splitlines()]
            assert ["slots", "all", "at_once", "2", "3", "1", "-"] in rows
            assert ["slots", "key", "tenant", "7", "at_once", "2", "2", "0", "-"] in rows
            assert ["tenant", "7", "2", "0", "slots", "2"] in rows
            told = json.loads(run(*command, "--json").stdout)
            assert told["top"] == [{"key": "tenant 7", "held": {"slots": 2}, "holds": 2, "waiting": 0}]
            for hold in holds:
                hold.release()
        missing = run("state", "orders", *command[2:])
        assert missing.returncode == 1
        assert_one_line(missing.stderr, "there is no limiter 'orders'")
        await client.remove("llm")
