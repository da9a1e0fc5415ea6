"""`headgate pool forget-site`: it frees what a site held at an operator's word, and nothing at a wrong one."""

import asyncio

import pytest
from typer.testing import CliRunner, Result

from headgate_coordinator.cli.commands import command_line
from tests.links.pools.pool_sites import part, shared, whole, working
from tests.links.sites import SiteOf

pytestmark = pytest.mark.one_server


async def forget(site: SiteOf, *arguments: str) -> Result:
    """Run the command in another thread: it has an event loop of its own."""
    words = ["pool", "forget-site", *arguments, "--redis", site.url, "--namespace", site.client.namespace]
    return await asyncio.to_thread(CliRunner().invoke, command_line(), words)


async def test_what_a_lost_site_held_is_free_once_an_operator_says_so(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(whole(1000, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris, berlin):
        await berlin.send("invoices", b"x" * 497, timeout=20)
    held = (await shared(paris))["@berlin"]
    assert held >= 500
    unsure = await forget(paris, "orders", "berlin")
    assert unsure.exit_code == 2
    assert "--gone" in unsure.output
    for pool, site, why in (
        ("order", "berlin", "there is no pool 'order'; headgate status lists them"),
        ("orders", "berlim", "no site 'berlim' has a part of pool 'orders'; berlin has"),
        ("orders", "rome", "no site 'rome' has a part of pool 'orders'; berlin has"),
        ("orders", "@berlin", "no site '@berlin' has a part of pool 'orders'; berlin has"),
        ("orders", "a b", "no site 'a b' has a part of pool 'orders'; berlin has"),
    ):
        done = await forget(paris, pool, site, "--gone")
        assert why in str(done.exception)
    assert await shared(paris) == {"@berlin": held}
    done = await forget(paris, "orders", "berlin", "--gone")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"headgate: {held} bytes of pool orders that site berlin held are free")
    assert await shared(paris) == {"@berlin": 0}
