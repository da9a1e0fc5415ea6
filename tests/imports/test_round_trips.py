"""Round trips: a configuration is imported and applied, and the destination does as the product's document states.

Each case names the settings that it shows; a test counts how many of all that importers keep exactly are shown.
"""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull
from headgate import policy as documents
from headgate.brokers import KEPT, words
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.policy.lint import lint
from tests.amqp.client import Peer
from tests.amqp.conftest import StartNode
from tests.conformance.story import body, fill, holds, take
from tests.docs.imports_page import PRODUCTS
from tests.imports.test_configurations import READERS
from tests.links.channels import Group, Stamped, collecting, opened, sending
from tests.sdk.observing import GUARD, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
Shows = partial[Awaitable[None]]
ELSEWHERE = {"ems.destination.flowControl", "ems.tibemsd.flow_control"}
"""Shown by the manual's example of EMS, which is of two files: test_ems.py."""
NOT_OF_FILES = ("element", "client", "call", "url")
"""Groups of words that stand in no file: elements that hold others, and what clients say."""


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration, of a file or more, what it shows, and the settings that are shown by it, with their group."""

    product: str
    files: dict[str, str]
    shows: Shows
    settings: list[str]

    @property
    def words(self) -> set[str]:
        return {f"{self.product}.{setting}" for setting in self.settings}


async def _send(producer: headgate.Producer, how: str, size: int) -> None:
    """See that one more finds no room, and what happens to it."""
    if how == "drop":
        assert (await producer.send(body(size), timeout=GUARD)).dropped
        return
    error = DestinationFull if how.startswith("fail") else CreditTimeout
    with pytest.raises(error):
        await producer.send(body(size), timeout=GUARD if how.startswith("fail") else 1)


async def has_room(client: headgate.Client, *, name: str, count: int, size: int, how: str, other: int = 0) -> None:
    """See that so many messages find room, one more does not, and that it does once they are settled."""
    async with client.session() as session:
        producer = await session.producer(name, window=1)
        for _ in range(count):
            assert not (await producer.send(body(size), timeout=GUARD)).dropped
        await _send(producer, how, other or size)
        await client.purge(name)
        await producer.send(body(size), timeout=GUARD)


async def shares(client: headgate.Client, *, names: str, size: int, how: str) -> None:
    """See that the first has room and the second does not, for both together have none."""
    async with client.session() as session:
        first, second = [await session.producer(name, window=1) for name in names.split()]
        await first.send(body(size), timeout=GUARD)
        await _send(second, how, size)


async def attempts(client: headgate.Client, *, name: str, count: int, dead: str) -> None:
    """See that a message fails so often and not once more, and is a dead letter then, or gone."""
    await fill(client, name, 1)
    async with client.session() as session:
        consumer = await session.consumer(name)
        for _ in range(count):
            await (await take(consumer)).modify(failed=True)
        if dead:
            await (await take(await session.consumer(dead))).accept()
        await wait_until(partial(_is_empty, client, name), description="it does not come again")


async def rejected(client: headgate.Client, *, name: str, dead: str) -> None:
    await fill(client, name, 1)
    async with client.session() as session:
        await (await take(await session.consumer(name))).reject()
        await (await take(await session.consumer(dead))).accept()


async def comes_again(client: headgate.Client, *, name: str, delays: list[float]) -> None:
    await fill(client, name, 1)
    loop = asyncio.get_running_loop()
    async with client.session() as session:
        consumer = await session.consumer(name)
        message = await take(consumer)
        for delay in delays:
            failed = loop.time()
            await message.modify(failed=True)
            message = await take(consumer)
            assert loop.time() - failed >= delay * 0.99
        await message.accept()


async def expires(client: headgate.Client, *, name: str) -> None:
    await fill(client, name, 1)
    async with client.session() as session:
        await asyncio.sleep(1.2)
        assert await (await session.consumer(name)).receive(timeout=0.5) is None


async def pushes(client: headgate.Client, *, name: str, count: int, size: int = 100, **said: Any) -> None:
    """See that a consumer that says nothing holds so many and no more."""
    async with client.session() as session:
        consumer = await session.consumer(name, **said)
        await fill(client, name, count + 5, size)
        await holds(client, consumer, count)


async def by_priority(client: headgate.Client, *, name: str) -> None:
    async with client.session() as session:
        producer = await session.producer(name)
        for priority in (1, 9, 5):
            await producer.send(str(priority), priority=priority, timeout=GUARD)
        consumer = await session.consumer(name, window=1)
        got = []
        for _ in range(3):
            message = await take(consumer)
            got.append(message.body)
            await message.accept()
        assert got == ["9", "5", "1"]


async def serves_many(client: headgate.Client, *, name: str) -> None:
    """See that many senders and consumers of many queues are served, and that a queue stays without any."""
    for at in range(5):
        async with client.session() as session:
            for _ in range(5):
                await (await session.producer(f"{name}{at}")).send(b"x", timeout=GUARD)
            consumers = [await session.consumer(f"{name}{at}", window=1) for _ in range(5)]
            for consumer in consumers:
                await (await take(consumer)).accept()
    assert len(await client.destinations()) >= 5


async def is_kind(client: headgate.Client, *, name: str, kind: str) -> None:
    """See that a name that nobody used is made as one of a kind."""
    async with client.session() as session:
        await session.producer(name)
    assert (await look(client, name)).fields["kind"] == kind


async def forwards(client: headgate.Client, *, source: str, target: str, copies: bool, only: str = "") -> None:
    """See that a node forwards what a bridge is for, and nothing else; with copies the source keeps its own."""
    async with client.session() as session:
        there = await session.consumer(target)
        here = await session.consumer(source) if copies else None
        producer = await session.producer(source)
        await wait_until(partial(_work, client), timeout=GUARD, description="links have their ends")
        for region in ("US", "EU"):
            await producer.send(region, headers={"region": region}, timeout=GUARD)
        for text in [only] if only else ["US", "EU"]:
            await _gets(there, text)
        for text in ["US", "EU"] if here is not None else []:
            await _gets(here, text)


async def is_told_slow(client: headgate.Client, *, name: str) -> None:
    """See that a consumer that settles nothing while others send is told, within two looks, and then is not slow."""
    await fill(client, name, 10)
    async with client.session(ttl=1) as session:
        told: list[headgate.Consumer] = []
        session.on_slow(told.append)
        consumer = await session.consumer(name, window=3)
        await wait_until(lambda: consumer.is_slow, timeout=GUARD, description="a slow consumer is told")
        assert told == [consumer]
        for _ in range(10):
            await (await take(consumer)).accept()
        await wait_until(lambda: not consumer.is_slow, timeout=GUARD, description="it settles, and is slow no more")


async def rejects_beyond(client: headgate.Client, *, name: str, port: int) -> None:
    """See that of six messages that AMQP senders have credit for five are stored, above the limit, and one rejected."""
    peer = await Peer.connect(port)
    links = [await peer.sender(name, link) for link in ("a", "b", "c")]
    waits = [await peer.put(link, "x" * 2900) for link in links * 2]
    outcomes = [outcome for outcome, _ in await asyncio.gather(*waits)]
    assert sorted(outcomes) == ["accepted"] * 5 + ["rejected"]
    assert 10_000 < await field(client, name, "pending_bytes") <= 15_000
    await peer.close()


async def spools(client: headgate.Client, *, name: str, limit: int) -> None:
    """See that twice as much as memory is for finds room, blocks nobody, and comes in order."""
    async with client.session() as session:
        producer = await session.producer(name)
        count = 2 * limit // 1000
        async with asyncio.timeout(GUARD):
            for number in range(count):
                await producer.send(f"{number:04}" + "x" * 992)
        assert await field(client, name, "pending_messages") == count
        assert await field(client, name, "pending_bytes") <= limit
        consumer = await session.consumer(name)
        for number in range(count):
            message = await take(consumer)
            assert str(message.body).startswith(f"{number:04}")
            await message.accept()


async def browses(client: headgate.Client, *, name: str, count: int) -> None:
    """See that a browser reads so many messages at a time, and all of them in the end."""
    await fill(client, name, 3 * count)
    pages, browse = [], client.store.browse

    async def counted(*arguments: Any, **more: Any) -> Any:
        pages.append(len(page := await browse(*arguments, **more)))
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.store, "browse", counted)
        assert len([message async for message in client.browse(name)]) == 3 * count
    assert pages == [count, count, count, 0]


async def holds_only_with_consumers(client: headgate.Client, *, name: str, only: bool) -> None:
    """See whether a limit of two messages holds where nobody consumes; where somebody does, it always does."""
    async with client.session() as session:
        producer = await session.producer(name, window=1)
        for _ in range(2 + only):
            await producer.send(body(5000), timeout=GUARD)
        if only:
            await session.consumer(name, window=1)
        await _send(producer, "block", 5000)


async def is_on_disk(client: headgate.Client, *, name: str) -> None:
    """See that a send is not confirmed by a server that writes nothing to a disk."""
    async with client.session() as session:
        with pytest.raises(headgate.NotDurable):
            await (await session.producer(name)).send(b"x", timeout=GUARD)


async def multicasts(client: headgate.Client, *, topic: str, rate: int, ttl: int) -> None:
    """See that a topic is sent to the group, over the interface, so far and no faster."""
    (channel,) = (await client.policy()).channels
    group = Group(channel.group, channel.port)
    async with sending(client):
        await opened(client, topic)
        stamped = Stamped(group)
        async with collecting(group.reader()) as got:
            await fill(client, topic, 100, 1000)
            await wait_until(lambda: len(got.messages) == 100, timeout=GUARD)
    stamped.close()
    assert stamped.most_above(rate) <= channel.most_at_once
    assert stamped.ttls == {ttl}


async def _gets(consumer: headgate.Consumer | None, expected: str) -> None:
    assert consumer is not None
    message = await take(consumer)
    assert message.body == expected
    await message.accept()


async def _work(client: headgate.Client) -> bool:
    return all(link.state == "works" and link.backlog is not None for link in await list_links(client))


async def _is_empty(client: headgate.Client, name: str) -> bool:
    return await field(client, name, "pending_messages") == 0


SHOWS: dict[str, Callable[..., Awaitable[None]]] = {
    show.__name__: show
    for show in (
        has_room, shares, attempts, rejected, comes_again, expires, pushes, by_priority, serves_many, is_kind, forwards,
        is_told_slow, rejects_beyond, spools, browses, holds_only_with_consumers, is_on_disk, multicasts,
    )
}  # fmt: skip
CASES = [
    Case(
        case["product"],
        {case["file"]: case["text"], **case.get("also", {})},
        partial(SHOWS[case["shows"]], **case["with"]),
        case["settings"],
    )
    for case in tomllib.loads((Path(__file__).parent / "round_trips.toml").read_text())["case"]
]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.product}-{case.settings[-1]}") for case in CASES])
async def test_what_is_kept_exactly_does_as_the_document_states(
    client: headgate.Client, tmp_path: Path, case: Case, start_node: StartNode
) -> None:
    group = Group()
    files = {tmp_path / name: text for name, text in case.files.items()}
    for file, text in files.items():
        file.write_text(text.replace("GROUP:PORT", f"{group.address}:{group.port}"))
    imported = READERS[case.product](sorted(files))
    kept = {f"{case.product}.{row.setting}" for row in imported.rows if row.verdict == KEPT}
    assert case.words <= kept, [row for row in imported.rows if row.verdict != KEPT]
    policy = documents.loads(imported.document.replace("file:///var/spool/headgate", tmp_path.as_uri()))
    assert not lint(policy)
    await client.apply_policy(policy)
    over_node = {"port": start_node().port} if case.shows.func is rejects_beyond else {}
    if policy.links:
        start_node()
    await case.shows(client, **over_node)


def test_how_many_of_the_settings_that_are_kept_are_shown() -> None:
    kept = {
        f"{product}.{word.group}.{word.name}"
        for product in PRODUCTS
        for group in words(product).values()
        for word in group.values()
        if word.verdict == KEPT and word.group not in NOT_OF_FILES
    }
    shown = ELSEWHERE.union(*(case.words for case in CASES))
    assert shown <= kept, shown - kept
    assert len(shown) / len(kept) >= 0.9, sorted(kept - shown)
