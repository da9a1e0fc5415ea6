"""`headgate policy apply` and `show` on a running system."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

import headgate
from tests.demo.command import assert_one_line, run
from tests.policy.live import state
from tests.sdk.observing import drain
from tests.support.waiting import wait_until

SMALL = """
[[destination]]
match = "orders.#"
limit = 500
max_attempts = 3
"""
LARGE = SMALL.replace("500", "5000").replace("max_attempts = 3", 'when_full = "fail"')


@pytest.fixture
async def client(one_url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(one_url, namespace=namespace) as client:
        await client.apply("orders.eu", limit=2000)
        await client.apply("else", limit=77)
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "shop.toml", SMALL)


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


async def headgate_policy(client: headgate.Client, *arguments: str | Path, url: str) -> CompletedProcess[str]:
    options = ("--redis", url, "--namespace", client.namespace)
    return await asyncio.to_thread(run, "policy", *map(str, arguments), *options)


async def told(client: headgate.Client, *arguments: str | Path, url: str) -> Any:
    done = await headgate_policy(client, *arguments, "--json", url=url)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_it_is_applied_and_shown(client: headgate.Client, file: Path, one_url: str) -> None:
    done = await headgate_policy(client, "apply", file, url=one_url)
    assert done.stdout == "policy version 1 of shop.toml is in force for 2 destination(s)\n"
    assert (await state(client, "orders.eu"))["limit_bytes"] == "500"
    assert (await state(client, "else"))["limit_bytes"] == "77"

    done = await headgate_policy(client, "show", url=one_url)
    assert "version 1 of shop.toml" in done.stdout
    assert "orders.#" in done.stdout
    done = await headgate_policy(client, "show", "orders.eu", "--effective", url=one_url)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert lines["limit.bytes"] == ["500", "orders.#", "shop.toml:4"]
    assert lines["limit.messages"] == ["unlimited", "default"]

    await client.apply("orders.eu", limit=600)
    settings = (await told(client, "show", "orders.eu", url=one_url))["settings"]
    assert (settings["limit_bytes"]["value"], settings["limit_bytes"]["rule"]) == ("600", "by hand")
    assert settings["max_attempts"]["rule"] == "orders.#"
    settings = (await told(client, "show", "orders.new", url=one_url))["settings"]
    assert settings["limit_bytes"]["value"] == "500"


async def test_a_dry_run_shows_the_difference_and_changes_nothing(
    client: headgate.Client, file: Path, one_url: str
) -> None:
    async with client.session("s") as session:
        held = (await (await session.producer("orders.eu")).send(b"x" * 900)).size
    before = [await state(client, name) for name in ("orders.eu", "else")]
    done = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert done.stdout.splitlines() == [
        "orders.eu (queue)",
        "  limit.bytes: 2000 -> 500 (orders.# at shop.toml:4)",
        "  max_attempts: default -> 3 (orders.# at shop.toml:5)",
        f"  would block: {held} bytes are pending or leased, above the new limit of 500",
        "1 of 2 destination(s) would change, 1 would block",
        "no policy is in force now",
    ]
    (change,) = (await told(client, "apply", file, "--dry-run", url=one_url))["changes"]
    assert change["would_block"] == [{"unit": "bytes", "held": held, "limit": 500}]
    assert change["changes"][0] == {
        "field": "limit_bytes", "key": "limit.bytes", "old": "2000", "new": "500", "rule": "orders.#",
        "place": "shop.toml:4",
    }  # fmt: skip
    assert [await state(client, name) for name in ("orders.eu", "else")] == before
    assert (await client.policy()).version == 0


async def test_a_dry_run_shows_what_goes_back_to_its_default(client: headgate.Client, file: Path, one_url: str) -> None:
    await headgate_policy(client, "apply", file, url=one_url)
    done = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert done.stdout.splitlines() == [
        "0 of 2 destination(s) would change, 0 would block",
        "it is in force already, as version 1",
    ]
    write(file, LARGE)
    done = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert "  max_attempts: 3 -> default (no rule sets anything)" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "it would replace version 1"


async def test_a_dry_run_shows_pools_and_refuses_what_could_not_be_applied(
    client: headgate.Client, file: Path, one_url: str
) -> None:
    write(file, SMALL + '[[pool]]\nname = "memory"\nlimit = "64KB"\n')
    dry = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert "pool memory: limit_bytes: none -> 64000 (shop.toml:8)" in dry.stdout.splitlines()
    await headgate_policy(client, "apply", file, url=one_url)
    write(file, SMALL)
    dry = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert "pool memory: limit_bytes: 64000 -> none (no longer named)" in dry.stdout.splitlines()
    assert (await told(client, "apply", file, "--dry-run", url=one_url))["pools"][0]["pool"] == "memory"
    write(file, SMALL + '[[pool]]\nname = "memory"\npercent = 50\n')
    dry = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert dry.returncode == 2
    assert_one_line(dry.stderr, "shop.toml:8: pool 'memory': a percent of Redis' maxmemory, and there is none")


async def test_a_dry_run_shows_stores_and_an_apply_those_that_are_kept(
    client: headgate.Client, file: Path, one_url: str, tmp_path: Path
) -> None:
    """Mutants: stores are not compared; nothing is said of one that is kept."""
    stored = f'[[store]]\nname = "disk"\nurl = "file://{tmp_path}"\nlimit = "64KB"\n'
    write(file, SMALL + stored)
    dry = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert "store disk: limit_bytes: none -> 64000 (shop.toml:9)" in dry.stdout.splitlines()
    await headgate_policy(client, "apply", file, url=one_url)
    shown = await headgate_policy(client, "show", url=one_url)
    assert ["disk", "store", "limit_bytes", "64000", "shop.toml:9"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    write(file, SMALL)
    dry = await headgate_policy(client, "apply", file, "--dry-run", url=one_url)
    assert "store disk: limit_bytes: 64000 -> none (no longer named)" in dry.stdout.splitlines()
    assert (await told(client, "apply", file, "--dry-run", url=one_url))["stores"][0]["store"] == "disk"
    await client.apply("orders.eu", limit=50, when_full="spool", store="disk")
    async with client.session("s") as session:
        producer = await session.producer("orders.eu")
        await producer.send(b"x" * 90)
        done = await headgate_policy(client, "apply", file, url=one_url)
        assert "spool store 'disk' is no longer named, and is kept while it holds 1 segment(s)" in done.stderr
        await drain(await session.consumer("orders.eu"), 1)
    await wait_until(lambda: _removed(client), description="the store is empty, and goes")


async def _removed(client: headgate.Client) -> bool:
    with contextlib.suppress(headgate.PolicyError):
        await client.remove_store("disk")
    return not await client.stores()


async def test_what_was_stopped_by_hand_is_shown(client: headgate.Client, file: Path, one_url: str) -> None:
    await headgate_policy(client, "apply", file, url=one_url)
    await client.block("orders.eu", "disk is being replaced")
    for options in ((), ("--effective",)):
        done = await headgate_policy(client, "show", "orders.eu", *options, url=one_url)
        (line,) = (line for line in done.stdout.splitlines() if line.lstrip().startswith("stopped"))
        assert "disk is being replaced" in line
        assert "by hand" in line


async def test_only_over_the_version_that_is_expected(client: headgate.Client, file: Path, one_url: str) -> None:
    assert (await told(client, "apply", file, "--expect", "0", url=one_url))["version"] == 1
    write(file, LARGE)
    for dry in ((), ("--dry-run",)):
        done = await headgate_policy(client, "apply", file, "--expect", "7", *dry, url=one_url)
        assert done.returncode == 1
        assert_one_line(done.stderr, "policy version 1 is in force, not 7")
    assert (await told(client, "apply", file, "--expect", "1", url=one_url))["version"] == 2


async def test_a_document_with_a_mistake_is_not_applied(client: headgate.Client, file: Path, one_url: str) -> None:
    write(file, SMALL + '\n[[destination]]\nmatch = "news"\nlimit = "ten"\n')
    done = await headgate_policy(client, "apply", file, url=one_url)
    assert done.returncode == 2
    assert "shop.toml:9" in done.stderr
    assert (await state(client, "orders.eu"))["limit_bytes"] == "2000"
    assert (await client.policy()).version == 0


TOKENS = '[[limiter]]\nmatch = "llm"\n[[limiter.limit]]\nname = "tokens"\nrate = 10\n'


async def test_limits_of_another_document_are_tried_beside_those_in_force(
    client: headgate.Client, tmp_path: Path, one_url: str
) -> None:
    """Mutants: what is in force changes; a second trial is added to the first; a plain apply leaves it there."""
    file, other = write(tmp_path / "shop.toml", SMALL + TOKENS), tmp_path / "other.toml"
    await headgate_policy(client, "apply", file, url=one_url)
    await client.parts.registry.policies.look()
    async with client.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        for rate in (5, 2):
            more = '[[limiter.limit]]\nname = "spend"\nquota = "5/day"\n[limiter.per_key]\ntokens = 1\n'
            write(other, LARGE + TOKENS.replace("10", str(rate)) + more)
            done = await headgate_policy(client, "apply", "--shadow", other, url=one_url)
            assert done.stdout.endswith("limits of other.toml are shadow limits beside those in force\n"), done
            assert "not tried: 'spend' of 'llm'" in done.stderr
            found = await state(client, "llm")
            assert found["limits"] == "tokens rate 10.0 10"
            assert found["shadow_limits"] == f"tokens rate {rate}.0 {rate};spend quota 5 day 0"
            assert found["shadow_key_limits"] == "tokens rate 1.0 1"
            orders = await state(client, "orders.eu")
            assert (orders["limit_bytes"], orders["shadow"]) == ("500", "bytes at_once 5000")
        async with llm.admit(tokens=8):
            looked = await llm.state()
        assert [(one.level.name, one.would_wait) for one in looked.shadows] == [("tokens", 1)]
        await headgate_policy(client, "apply", file, url=one_url)
        assert "shadow_limits" not in await state(client, "llm")
        assert "shadow" not in await state(client, "orders.eu")
