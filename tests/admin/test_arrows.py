"""The links of the policy on the live page, as arrows; with a real node that works on them."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

import headgate
from headgate.policy import loads
from tests.admin.browser import CHROMIUM, DRIVER, TEXT, Browser, picture
from tests.admin.site import Site
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.policy.test_bridges import bridges, rule
from tests.support.extent import share_of
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on PATH: run .ci/ensure-chromium as root"
)
LONG = "warehouse." + "x" * 100
MARKUP = "<img src=x onerror=window.harmed=1"
POLICY = 'site_name = "paris"\n' + bridges(
    ("orders", "billing"), ("billing", "archive"), ("mail", "sent"), ("slow", "paced"), (LONG, MARKUP),
    more="".join(rule(name, "limit = 400") for name in ("orders", "billing", "archive"))
    + rule("paced", "rate = { messages = 1, burst = 1 }")
    + '[[site]]\nname = "york"\nurl = "env:HEADGATE_SITE_N"\n'
    + '[[route]]\nname = "away"\nto = "york"\nqueues = "letters"\n',
)  # fmt: skip
SIDE = "document.querySelector(`li[data-link='${arguments[0]}']`)?.dataset.side"
WORDS = "document.querySelector(`li[data-link='${arguments[0]}']`)?.innerText"


@pytest.fixture
def node(site: Site, cleanup_namespace: str, shared_servers: SharedServers) -> Iterator[NodeProcess]:
    with nodes(shared_servers.standalone(newest_server()), cleanup_namespace, 1, "--ttl", 2) as (started,):
        yield started


async def _send(client: headgate.Client, name: str, count: int) -> None:
    async with client.session() as session:
        producer = await session.producer(name, timeout=120)
        for _ in range(count):
            await producer.send(b"1234567")


async def _pump(client: headgate.Client) -> None:
    """Send to a link some tens of messages a second, and take from behind it, for as long as the site lives."""
    async with client.session() as session:
        producer, consumer = await session.producer("mail"), await session.consumer("sent")
        while True:
            await producer.send(b"1234567")
            await asyncio.sleep(0.03)
            message = await consumer.receive(timeout=10)
            if message is not None:
                await message.accept()


@pytest.mark.longest
def test_links_are_arrows_with_their_rate_backlog_and_the_side_that_binds(
    page: Browser, site: Site, node: NodeProcess
) -> None:
    assert page.run("return document.querySelector('#arrows-section').hidden")
    site.run(site.client.apply_policy(loads(POLICY, "shop.toml")))
    page.wait("document.querySelectorAll('#arrows li').length == 6")
    site.spawn(_send(site.client, "orders", 400))
    site.spawn(_send(site.client, "slow", 100))
    site.spawn(_pump(site.client))
    for link, side in (("orders>billing", "target"), ("billing>archive", "target"), ("slow>paced", "rate")):
        page.wait(f"{SIDE} == '{side}'", link)
    told = page.wait(f"/2 links wait one for the next/.test({WORDS}) && {WORDS}", "orders>billing")
    assert "bridge billing>archive waits: archive is blocked: the limit of 400 bytes is reached: no consumer" in told
    assert "at archive: attach a consumer" in told
    assert "target full" in told
    assert "at node-0~" in told
    page.wait(f"/backlog [1-9]/.test({WORDS})", "slow>paced")
    page.wait(f"/[1-9][0-9.]*.k?.?\\/s/.test({WORDS})", "mail>sent")
    page.wait(f"{SIDE} == 'source'", page.run("return document.querySelectorAll('#arrows li')[4].dataset.link"))
    told = page.wait(f"/HEADGATE_SITE_N/.test({WORDS}) && {WORDS}", "paris:letters>york:letters")
    assert "york:letters" in told
    assert "route away · site york" in told
    assert "stuck" in told
    shown = "[...document.querySelector('#arrows li:last-child .to').children].filter(one => one.offsetParent)"
    assert page.run(f"return {shown}.map(one => one.tagName).join()") == "SPAN", "there is no page of it here"
    assert page.run("return document.images.length") == 1, "the page's own"
    assert "bridge billing>archive" in page.wait(f"({TEXT} ?? '').includes('billing>archive') && {TEXT}", "#waiting")
    for (width, height), dark in share_of(itertools.product(((1280, 900), (360, 740)), (False, True)), 3):
        page.look_like(width, height, dark=dark, scale=2 if width == 360 else 1)
        assert page.run("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
        page.run("document.querySelector('#arrows-section').scrollIntoView()")
        picture(page, f"arrows-{width}-{'dark' if dark else 'light'}")
    page.look_like(1280, 900)
    page.click("#arrows li:first-child .to .end")
    assert "fed by bridge orders>billing" in page.wait(f"({TEXT} ?? '').includes('fed by') && {TEXT}", "#panel-explain")
    page.press("\ue00c")  # Escape
    node.kill9()
    page.wait(f"{SIDE} == 'nobody'", "orders>billing")
    page.wait(f"/start a node/.test({WORDS})", "mail>sent")
    node.start()


@pytest.mark.soak
def test_a_link_that_is_ending_says_so_until_it_is_gone(page: Browser, site: Site, node: NodeProcess) -> None:
    site.run(site.client.apply_policy(loads(bridges(("orders", "billing")))))
    page.wait(f"{SIDE} == 'source'", "orders>billing")
    node.kill9()
    page.wait(f"{SIDE} == 'nobody'", "orders>billing")
    site.run(site.client.apply_policy(loads("destination = []")))
    assert "ending" in page.wait(f"/no longer names it/.test({WORDS}) && {WORDS}", "orders>billing")
    node.start()
    page.wait("document.querySelector('#arrows-section').hidden")
