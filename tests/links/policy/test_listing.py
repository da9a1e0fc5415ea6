"""The links that a live picture reads: so many, and those that need somebody first."""

from dataclasses import replace

import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import owned_keys
from headgate_coordinator.admin import links as page
from headgate_coordinator.admin.namespace_watch import CachedValue
from headgate_coordinator.fleet.registry import NodeEntry, NodeRegistry
from headgate_coordinator.links import listing
from headgate_coordinator.links.listing import first_links, list_links
from headgate_coordinator.operate.status import LinkState

pytestmark = pytest.mark.one_server
NODE = NodeEntry("n1", "127.0.0.1:5672", "", 0.0, "ready", 0, 0, 0.0, troubles={"s2>t2": "the target has no room"})


async def test_a_bounded_list_reads_only_its_links_and_begins_with_those_in_trouble(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: all are read; they come in the order of the policy; how many there are is how many were read."""
    text = "".join(f'[[bridge]]\nname = "b{at}"\nfrom = "s{at}"\nto = "t{at}"\n' for at in range(6))
    read: list[str] = []
    look = listing._look

    async def counted(client: headgate.Client, name: str, *more: object) -> LinkState:
        read.append(name)
        return await look(client, name, *more)  # type: ignore[arg-type]

    async def there(_: NodeRegistry) -> list[NodeEntry]:
        return [replace(NODE)]

    monkeypatch.setattr(listing, "_look", counted)
    monkeypatch.setattr(NodeRegistry, "list", there)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(loads(text))
        owned = owned_keys(cleanup_namespace)[0]
        for name in ("s0>t0", "s1>t1", "s2>t2", "s3>t3", "s5>t5", "gone>gone"):
            await client.store.server.command(owned, "HSET", owned, name, "owner=n1")
        found, total = await first_links(client, 3)
        assert sorted(read) == ["gone>gone", "s2>t2", "s4>t4"]
        assert [one.state for one in found] == ["stalled", "nobody", "ending"]
        assert total == 7
        monkeypatch.setattr(page, "MOST_SHOWN", 2)
        watch, before = page.LinkWatch(client, CachedValue(NodeRegistry(client).list)), len(read)
        drawn = await watch.links()
        assert (len(read) - before, len(drawn.links), drawn.total) == (2, 2, 7)
        await watch.close()
        read.clear()
        every = [one.source for one in await list_links(client)]
        assert every == ["s0", "s1", "s2", "s3", "s4", "s5", "gone"]
        assert (len((await first_links(client, 7))[0]), len(read)) == (7, 7 + 7)
