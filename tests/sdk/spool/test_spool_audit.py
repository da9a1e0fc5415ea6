"""`headgate audit` of spool stores: what is missing, orphaned or held, told from what is only on its way."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import headgate
from headgate.redis.keys import PARTS, Address
from headgate_coordinator.operate.audit import audit
from headgate_coordinator.operate.audit_stores import StoreFinding, audit_stores, render
from tests.demo.command import run
from tests.sdk.observing import GUARD, drain

pytestmark = pytest.mark.one_server


@asynccontextmanager
async def spooled(client: headgate.Client, folder: Path, count: int = 40) -> AsyncIterator[headgate.Session]:
    """Have 40 messages at a destination, most of them in a store; they are consumed in the end."""
    await client.set_store("disk", f"file://{folder}", limit="1MB", segment="4KiB")
    await client.apply("orders/eu", limit="10KB", when_full="spool", store="disk")
    async with client.session("s") as session:
        producer = await session.producer("orders/eu")
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(producer.send(b"x" * 1000) for _ in range(count)))
        await producer.close()
        yield session


async def audited(client: headgate.Client, *, repair: bool = False) -> StoreFinding:
    (finding,) = await audit_stores(client, repair=repair)
    return finding


def segments(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".headgate")


def told(finding: StoreFinding) -> str:
    out = io.StringIO()
    Console(width=300, file=out).print(render([finding]))
    return " ".join(out.getvalue().split())


async def test_what_is_in_order_is_said_so(client: headgate.Client, tmp_path: Path, redis_url: str) -> None:
    """Mutant: references are not looked for; then every segment is an orphan."""
    assert await audit_stores(client, repair=False) == []
    async with spooled(client, tmp_path):
        finding = await audited(client, repair=True)
        assert (finding.verdict, finding.segments) == ("equal", len(segments(tmp_path)))
        assert finding.held_bytes == sum(path.stat().st_size for path in segments(tmp_path)) > 20_000
        done = await asyncio.to_thread(run, "audit", "--json", "--redis", redis_url, "--namespace", client.namespace)
        assert done.returncode == 0
        assert [(one.get("destination") or one["store"], one["verdict"]) for one in json.loads(done.stdout)] == [
            ("orders/eu", "equal"), ("disk", "equal"),
        ]  # fmt: skip
        done = await asyncio.to_thread(run, "audit", "--redis", redis_url, "--namespace", client.namespace)
        assert "1 spool store compared: all in order." in done.stdout


async def test_a_payload_that_is_missing_or_cut_short_is_named(client: headgate.Client, tmp_path: Path) -> None:
    """Mutants: the listing is not compared; sizes are not."""
    async with spooled(client, tmp_path):
        gone, cut = segments(tmp_path)[:2]
        gone.unlink()
        cut.write_bytes(b"x" * 9)
        finding = await audited(client, repair=True)
        (first, second) = sorted(finding.missing, key=lambda text: "where" in text)
        assert re.search(
            rf"{gone.name}: \d message\(s\) of 'orders/eu' refer to it, and it is not in the storage", first
        )
        assert re.search(
            rf"{cut.name}: \d message\(s\) of 'orders/eu' refer to it, and it has 9 bytes where \d\d", second
        )
        assert finding.verdict == "differs", "no repair brings a payload back"
        assert "1 spool store compared: 1 not in order." in told(finding)


async def test_an_orphan_is_named_and_deleted_on_request(
    client: headgate.Client, tmp_path: Path, redis_url: str
) -> None:
    """Mutants: what the storage has and the store does not is left out; so is the reverse; nothing is deleted."""
    async with spooled(client, tmp_path):
        folder = segments(tmp_path)[0].parent
        (folder / "stray-1").write_bytes(b"x" * 5)  # somebody lost the state, or restored it from before
        await enter(client, "orders%2Feu/dead-1", "gone~00000000", 5)
        (folder / "dead-1").write_bytes(b"x" * 5)  # its writer died before he referred to it
        finding = await audited(client)
        assert [name.partition("/")[2] for name in sorted(finding.orphans)] == ["dead-1", "stray-1"], finding
        assert "--repair deletes it" in told(finding)
        assert len([path for path in segments(tmp_path) if path.name in ("dead-1", "stray-1")]) == 2
        place = ("--redis", redis_url, "--namespace", client.namespace)
        assert (await asyncio.to_thread(run, "audit", *place)).returncode == 1
        repaired = await audited(client, repair=True)
        assert (repaired.verdict, len(repaired.orphans)) == ("repaired", 2)
        assert [path for path in segments(tmp_path) if path.name in ("dead-1", "stray-1")] == []
        assert (await audited(client)).verdict == "equal"


async def unrecorded(client: headgate.Client) -> None:
    """Have the store keep no ledger: what is done to its keys by hand would contradict it."""
    await client.parts.registry.spooling.spools.set("disk", {"ledger": "off"})


async def enter(client: headgate.Client, segment: str, session: str, size: int) -> None:
    """Enter a segment at the store as `hold` does, in the name of any session."""
    await unrecorded(client)
    store = Address.of_store(client.namespace, "disk")
    key = store.shared[1 + PARTS.index("refs")]
    await client.store.server.command(key, "HSET", key, segment, f"{size} {session}")
    own = store.shared[0]
    await client.store.server.command(own, "HINCRBY", own, "pending_bytes", size)
    await client.store.server.command(own, "HINCRBY", own, "pending_messages", 1)


async def test_what_a_living_session_may_refer_to_yet_is_held(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: a segment that is being written is an orphan."""
    async with spooled(client, tmp_path) as session:
        producer = await session.producer("orders/eu")
        await enter(client, "orders%2Feu/mine-1", session.id, 5)
        finding = await audited(client, repair=True)
        assert finding.orphans == []
        assert [(name.partition("/")[2], by) for name, by in finding.waiting.items()] == [("mine-1", session.id)]
        assert f"session {session.id} may refer to it yet" in told(finding)
        await producer.close()


async def test_a_wrong_counter_of_a_store_is_found_and_repaired(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: stores are not recounted."""
    async with spooled(client, tmp_path):
        await unrecorded(client)
        own = Address.of_store(client.namespace, "disk").shared[0]
        await client.store.server.command(own, "HINCRBY", own, "pending_bytes", 7)
        finding = await audited(client)
        assert finding.verdict == "differs"
        assert "its counters are" in told(finding)
        await audited(client, repair=True)
        assert (await audited(client)).verdict == "equal"


async def test_a_wrong_count_of_what_a_destination_has_spooled_is_found(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Mutant: only what is pending and leased is compared."""
    async with spooled(client, tmp_path):
        (finding,) = await audit(client, repair=False)
        assert (finding.verdict, finding.counted["spooled_bytes"] > 20_000) == ("equal", True)
        own = Address.of(client.namespace, "orders/eu").shared[0]
        await client.store.server.command(own, "HINCRBY", own, "spooled_bytes", 7)
        (finding,) = await audit(client, repair=False)
        assert finding.verdict == "differs"
        assert finding.differences[0].startswith("spooled_bytes is ")
        await client.store.server.command(own, "HINCRBY", own, "spooled_bytes", -7)
        await client.store.server.command(own, "HINCRBY", own, "reference_bytes", 7)
        (finding,) = await audit(client, repair=False)
        assert (finding.verdict, len(finding.differences)) == ("differs", 1)
        assert finding.differences[0].startswith("reference_bytes is ")


async def test_spent_segments_that_nobody_is_there_to_delete_go_with_a_repair(
    client: headgate.Client, other: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: no sweep."""
    async with spooled(client, tmp_path) as session:

        def nothing(*_: Any) -> None: ...

        monkeypatch.setattr(client.parts.registry.spooling.sweeper, "_begin", nothing)
        await client.parts.registry.spooling.sweeper.close()
        await drain(await session.consumer("orders/eu"), 40)
        assert segments(tmp_path)
        assert (await audited(other)).sound
        await audited(other, repair=True)
        assert segments(tmp_path) == []


async def test_a_storage_that_is_away_is_told(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: the error ends the audit of the others."""
    await client.set_store("away", "file:///proc/1/nowhere", limit="1MB")
    async with spooled(client, tmp_path):
        found = {finding.store: finding for finding in await audit_stores(client, repair=False)}
        assert found["disk"].verdict == "equal"
        assert "it cannot be compared: spool store at file:///proc/1/nowhere" in told(found["away"])
        assert (found["away"].sound, found["disk"].sound) == (False, True)


@pytest.mark.parametrize(
    "name", ["..", ".", ".headgate", "ü" * 43, "ü" * 127, "é" * 85 + "..", "a" * 255, "..a", "ü" * 84 + "a.."], ids=repr
)
async def test_whatever_a_destination_is_called_its_payloads_are_in_the_folder_of_its_namespace(
    client: headgate.Client, tmp_path: Path, name: str
) -> None:
    """Mutants: the name as it is; a long one cut; its pieces without a mark, so that one of them is '..'."""
    root = tmp_path / "root"
    await client.set_store("disk", f"file://{root}", limit="1MB", segment="4KiB")
    await client.apply(name, limit="10KB", when_full="spool", store="disk")
    async with client.session("s") as session:
        producer = await session.producer(name)
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(producer.send(f"{number}".ljust(1000)) for number in range(40)))
        found = segments(tmp_path)
        assert found
        assert all(path.parent.is_relative_to(root / client.namespace) for path in found)
        assert all(path.parent != root / client.namespace for path in found)
        (stray := root / client.namespace / "lost+found" / "x").parent.mkdir()
        stray.write_text("somebody else's")
        finding = await audited(client, repair=True)
        assert (finding.verdict, finding.segments, finding.orphans, finding.missing) == ("equal", len(found), [], [])
        orphan = found[0].with_name("nobodys")
        orphan.write_text("left")
        finding = await audited(client, repair=True)
        assert [one.rpartition("/")[2] for one in finding.orphans] == ["nobodys"]
        assert not orphan.exists()
        messages = await drain(await session.consumer(name), 40)
        assert [int(message.body) for message in messages] == list(range(40))
    await client.parts.registry.spooling.sweeper.sweep(Address.of(client.namespace, name))
    assert segments(tmp_path) == [stray]
