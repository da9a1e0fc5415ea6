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
            assert ["slots", "all", "at_once", "2", "3", "1", "0", "-"] in rows
            assert ["slots", "key", "tenant", "7", "at_once", "2", "2", "0", "0", "-"] in rows
            assert ["tenant", "7", "2", "0", "slots", "2"] in rows
            told = json.loads(run(*command, "--json").stdout)
            (top,) = told["top"]
            assert (top["key"], top["held"], top["holds"], top["waiting"]) == ("tenant 7", {"slots": 2}, 2, 0)
            explained = run("explain", *command[1:], "--key", "tenant 7")
            assert "nothing is left of slots of key tenant 7: 2 of 2 held at once" in explained.stdout
            assert f"{session.id} has requests 2, slots 2 for key tenant 7, in 2 holds" in explained.stdout
            status = run("status", *command[2:]).stdout
            assert "slots at once" in status
            assert "tenant 7: slots 2" in status
            assert "tenant 7: slots 2" in run("top", "--once", *command[2:]).stdout
            wrong = run("explain", "llm", "--consumer", "ann.1", *command[2:])
            assert_one_line(wrong.stderr, "no consumer 'ann.1' is attached to 'llm'")
            for hold in holds:
                hold.release()
        missing = run("state", "orders", *command[2:])
        assert missing.returncode == 2
        assert_one_line(missing.stderr, "there is no destination 'orders' in namespace")
        await client.apply("orders", limit="1MiB")
        other = run("state", "orders", *command[2:])
        assert other.returncode == 2
        assert_one_line(other.stderr, "'orders' is a queue, not a limiter, gate or bucket; see headgate explain orders")
        await client.remove("orders")
        await client.remove("llm")


@pytest.mark.one_server
async def test_it_shows_bands_where_somebody_names_one(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: what is of no other band is not counted as of band 3."""
    place = ["--redis", redis_url, "--namespace", cleanup_namespace]
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4}}, shed={"6": 0.5})
        async with client.session("shop") as session:
            llm = await session.limiter("llm", in_hand=False)
            first = await llm.admit(slots=1)
            assert "shed" not in run("status", *place).stdout
            second = await llm.admit(slots=1, band=0)
            assert isinstance(await llm.attempt(slots=1, band=7), headgate.Refused)
            found = [["0", "0", "1", "0"], ["3", "0", "1", "0"], ["7", "0", "0", "1"]]
            rows = [line.split()[-4:] for line in run("state", "llm", *place).stdout.splitlines()]
            assert [row for row in found if row in rows] == found
            for command in (["status"], ["top", "--once"]):
                rows = [line.split()[-4:] for line in run(*command, *place).stdout.splitlines()]
                assert [row for row in found if row in rows] == found, command
            assert "band 7: 0 waiting, 0 admitted, 1 shed" in run("explain", "llm", *place).stdout
            told = json.loads(run("state", "llm", *place, "--json").stdout)
            assert told["bands"][2] == {"band": 7, "waiting": 0, "admitted": 0, "shed": 1}
            first.release()
            second.release()
        await client.remove("llm")


@pytest.mark.one_server
async def test_it_shows_gates_and_buckets_and_their_keys(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: only limiters are looked for."""
    place = ["--redis", redis_url, "--namespace", cleanup_namespace]
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("db", kind="gate", limit=8, key_limits={"bytes": {"at_once": 2}})
        await client.apply("mail", kind="bucket", rate="1/min", burst=5)
        async with client.session("shop") as session:
            gate, bucket = await session.gate("db"), await session.bucket("mail")
            permit = await gate.attempt(key="tenant 7")
            assert isinstance(permit, headgate.Permit)
            await bucket.take(2)
            await gate.hold_off(600, reason="429")
            told = json.loads(run("state", "db", *place, "--key", "tenant 7", "--json").stdout)
            assert told["key_limits"][0]["taken"] == 1
            (top,) = told["top"]
            assert (top["key"], top["held"], top["holds"]) == ("tenant 7", {"bytes": 1, "calls": 1}, 1)
            assert (told["reason"], told["held_off"] > 500) == ("429", True)
            shown = run("state", "mail", *place)
            assert shown.returncode == 0, shown.stderr
            rows = [line.split()[:6] for line in shown.stdout.splitlines()]
            assert ["tokens", "all", "rate", "2", "5", "3"] in rows
            permit.release()
        await client.remove("db")
        await client.remove("mail")


@pytest.mark.one_server
async def test_shadow_limits_of_gates_buckets_and_queues_are_shown_with_what_they_count(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: only those of limiters are shown: who tries one sees an unlimited queue and nothing else."""
    place = ["--redis", redis_url, "--namespace", cleanup_namespace]
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("db", kind="gate", limit=8, shadow={"bytes": 2})
        await client.apply(
            "mail", kind="bucket", rate="1/min", burst=50, shadow={"tokens": {"rate": "1/min", "burst": 5}}
        )
        await client.apply("orders", limit=1000, enforce="shadow")
        async with client.session("shop") as session:
            gate, bucket = await session.gate("db"), await session.bucket("mail")
            async with gate.admit(3):
                await bucket.take(7)
                await (await session.producer("orders")).send(b"x" * 2000)
                rows = [line.split() for line in run("state", "db", *place).stdout.splitlines()]
                assert ["bytes", "shadow,", "all", "at_once", "3", "2", "-1", "0", "-"] in rows
                rows = [line.split()[:7] for line in run("state", "mail", *place).stdout.splitlines()]
                assert ["tokens", "shadow,", "all", "rate", "7", "5", "-2"] in rows
                told = json.loads(run("state", "mail", *place, "--json").stdout)
                assert (told["would_wait"], told["shadowed"]) == (1, {"tokens of all": 1})
                rows = [line.split() for line in run("status", *place).stdout.splitlines()]
                assert rows[0][-2:] == ["would", "wait"]
                assert {row[0]: row[-1] for row in rows if row and row[0] in ("db", "mail", "orders")} == {
                    "db": "1", "mail": "1", "orders": "1"
                }  # fmt: skip
        for name in ("db", "mail", "orders"):
            await client.remove(name)
