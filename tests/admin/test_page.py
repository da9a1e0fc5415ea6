"""The live page in headless Chromium: what a person sees and does, by click, by key, on a phone, in the dark."""

import pytest

import headgate
from headgate.core.deadlock import Deadlock, Party, Step
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.fleet.node_facts import Counters
from headgate_coordinator.fleet.registry import NodeRegistry
from tests.admin.browser import CHROMIUM, DRIVER, TEXT, Browser, picture
from tests.admin.site import Site
from tests.admin.standin import link
from tests.support.servers import RedisServer, newest_server
from tests.support.shared import SharedServers

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on PATH: run .ci/ensure-chromium as root"
)
ROWS = "[...document.querySelectorAll('#rows tr')].map(row => row.dataset.name)"
MARKUP = "<img src=x onerror=window.harmed=1>"


WIDTHS = pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.soak), 360])


async def _fill(client: headgate.Client, name: str = "orders", limit: int = 1000) -> headgate.Session:
    """Fill a destination, and let a session wait to send more."""
    await client.apply(name, limit=limit)
    session = client.session("ann")
    producer = await session.producer(name)
    await producer.send(b"x" * 900)
    return session


async def _wait_to_send(session: headgate.Session, name: str = "orders") -> None:
    producer = await session.producer(name)
    await producer.send(b"x" * 900, timeout=120)


async def _apply(client: headgate.Client, **limits: object) -> None:
    for name, limit in limits.items():
        await client.apply(name, limit=limit)


def test_destinations_appear_without_a_reload_and_go(page: Browser, site: Site) -> None:
    assert "no destinations yet" in page.wait(TEXT, "#empty")
    site.run(site.client.apply("orders", limit="10MiB"))
    page.wait(f"{ROWS}.join() == 'orders'")
    assert "10.0" in page.wait(TEXT, "tr[data-name=orders] .amount")
    assert page.wait(TEXT, "#total-destinations") == "1"
    site.run(site.client.remove("orders"))
    page.wait(f"{ROWS}.length == 0")


def test_bars_follow_what_is_pending(page: Browser, site: Site) -> None:
    site.run(_fill(site.client, limit=2000))
    width = "parseFloat(document.querySelector('tr[data-name=orders] .meter .pending').style.width)"
    page.wait(f"{width} > 40 && {width} < 60")
    page.wait("document.querySelector('tr[data-name=orders] canvas').dataset.bars >= 2")
    ink = """
        const canvas = document.querySelector('tr[data-name=orders] canvas');
        const seen = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let inked = 0;
        for (let at = 3; at < seen.length; at += 4) inked += seen[at] > 0;
        return inked / (seen.length / 4);
    """
    assert 0 < page.run(ink) < 0.5, "bars on the right, nothing yet on the left"
    site.run(site.client.purge("orders"))
    page.wait(f"{width} == 0")


def test_a_blocked_sender_is_shown_with_its_reason(page: Browser, site: Site) -> None:
    session = site.run(_fill(site.client))
    site.spawn(_wait_to_send(session))
    row = page.wait(f"/blocked/.test({TEXT}) && {TEXT}", "tr[data-name=orders]")
    assert "the limit of 1000 bytes is reached: no consumer is attached" in row
    sender = page.wait(TEXT, "#waiting li")
    assert session.id in sender
    assert "place 1" in sender
    assert "in line " in sender, "not how long a call waits: the session keeps its place from one call to the next"
    assert "no consumer is attached" in sender
    assert page.wait(TEXT, "#total-blocked") == "1"
    assert page.run("return document.title") == "(1) Headgate"
    picture(page, "blocked")


async def _spool(client: headgate.Client) -> None:
    await client.set_store("disk", "memory://page", limit="20KB", segment="4KiB")
    await client.apply("orders", limit="4KB", when_full="spool", store="disk")
    producer = await client.session("ann").producer("orders")
    for _ in range(12):
        await producer.send(b"x" * 1000)


@WIDTHS
def test_memory_and_store_are_shown_apart(page: Browser, site: Site, width: int) -> None:
    """Mutants: stores are not drawn; what a destination has there is not said."""
    page.look_like(width, 900)
    site.run(_spool(site.client))
    page.wait(f"/KiB spooled/.test({TEXT})", "tr[data-name=orders] .spooled")
    store = page.wait(TEXT, "#stores li")
    for words in ("disk", "segments", "when full: block", "memory://page", "of 19.5"):
        assert words in store
    share = "parseFloat(document.querySelector('#stores .pending').style.width)"
    page.wait(f"{share} > 30 && {share} < 80")
    page.wait(f"/^(8|9|10)/.test({TEXT})", "#total-spooled")
    assert page.run("return document.documentElement.scrollWidth") <= width, "nothing is cut off"
    picture(page, f"stores-{width}")


async def _lose(client: headgate.Client, name: str) -> None:
    """Have Redis forget what a sender has receipts for, as another server that has taken over."""
    await client.apply(name)
    session = client.session("ann")
    producer = await session.producer(name)
    for _ in range(3):
        await producer.send(b"x")
    address = Address.of(client.namespace, name)
    receipt = address.keys(session.id)[-1]
    await client.store.server.command(receipt, "DEL", receipt)
    await client.store.server.command(receipt, "HSET", address.key, "run_id", "of-before")
    await producer.send(b"x", timeout=60)


@WIDTHS
def test_a_loss_is_shown_until_it_is_acknowledged(page: Browser, site: Site, width: int) -> None:
    """Mutants: losses are not drawn; they are shown again; a loss that comes after is not."""
    page.look_like(width, 900)
    site.run(site.client.apply("calm"))
    page.wait(f"{ROWS}.join() == 'calm'")
    assert page.run("return document.querySelector('#losses-part').hidden")
    site.spawn(_lose(site.client, "orders"))
    page.wait(f"{TEXT} == 'Redis lost 3 messages'", "#losses-title")
    one = page.wait(TEXT, "#losses li")
    assert one.startswith("orders 3 messages that senders have receipts for"), one
    assert "ago" in one
    assert page.run("return document.documentElement.scrollWidth") <= width, "nothing is cut off"
    picture(page, f"losses-{width}")
    page.click("#losses-known")
    page.wait("document.querySelector('#losses-part').hidden")
    page.open(site.url)
    page.wait(f"{ROWS}.join() == 'calm,orders'")
    assert page.run("return document.querySelector('#losses-part').hidden"), "it is known"
    site.spawn(_lose(site.client, "mail"))
    assert page.wait(f"/^mail/.test({TEXT}) && {TEXT}", "#losses li").startswith("mail 3 messages")


async def _share(client: headgate.Client) -> None:
    await client.set_pool("memory", limit="4KB")
    over_sites = 'site_name = "here"\n[[pool]]\nname = "tenant"\nlimit = "4KB"\nsites = { rome = "1KB" }\n'
    await client.apply_policy(loads(over_sites))
    await client.apply("orders", pools="memory")
    await client.apply("mail", pools="memory")
    await client.apply("calls", kind="gate", limit=8)
    session = client.session("ann")
    await (await session.producer("orders", window=10)).send(b"x" * 2996)


@WIDTHS
def test_pools_show_who_holds_them_and_a_gate_counts_without_a_unit(page: Browser, site: Site, width: int) -> None:
    """Mutants: pools are not drawn; their holders are not named; a gate of 8 calls is one of 8 bytes."""
    page.look_like(width, 900)
    site.run(_share(site.client))
    pool = page.wait(TEXT, "#pools li")
    for words in ("memory", "used", "lent of 3.91", "75 %", "orders 3.91"):
        assert words in pool, pool
    page.wait("Math.abs(parseFloat(document.querySelector('#pools .pending').style.width) - 75) < 1")
    for words in ("· 1 member", "never heard of, cut off"):
        assert words in page.run("return document.querySelector('#pools').textContent")
    assert page.wait(TEXT, "#pools .tag.warn:last-child") == "cut off"
    assert page.wait(TEXT, "tr[data-name=calls] .amount") == "0 + 0 of 8"
    assert page.run("return document.documentElement.scrollWidth") <= width, "nothing is cut off"
    picture(page, f"pools-{width}")


def test_search_filter_and_sort(page: Browser, site: Site) -> None:
    site.run(_apply(site.client, **{"shop.b": 3000, "shop.a": 1000, "mail": 2000}))
    session = site.run(_fill(site.client, "shop.c", limit=1000))
    page.wait(f"{ROWS}.join() == 'mail,shop.a,shop.b,shop.c'")
    page.type("#search", "SHOP")
    page.wait(f"{ROWS}.join() == 'shop.a,shop.b,shop.c'")
    assert page.wait(TEXT, "#shown") == "3 of 3 that fit, 4 in all"
    page.click("th[data-sort=used] button")
    page.wait(f"{ROWS}[0] == 'shop.c'")
    assert page.run("return document.querySelector('th[data-sort=used]').ariaSort") == "descending"
    page.click("th[data-sort=used] button")
    page.wait(f"{ROWS}.join() == 'shop.a,shop.b,shop.c'")
    assert page.run("return document.querySelector('th[data-sort=used]').ariaSort") == "ascending"
    site.spawn(_wait_to_send(session, "shop.c"))
    page.click("#only")
    page.wait(f"{ROWS}.join() == 'shop.c'")
    page.type("#search", "nothing like it")
    page.wait(f"{TEXT} == 'No destination fits.'", "#empty")


def test_block_unblock_and_purge_by_click(page: Browser, site: Site) -> None:
    site.run(_fill(site.client, "a/b c%d"))
    page.wait(f"{ROWS}.length == 1")
    page.click("#rows .link")
    assert "a/b c%d (queue): " in page.wait(TEXT, "#panel-explain")
    page.click("#do-block")
    page.type("#block-reason", "disk is being replaced")
    page.click("#block-form [type=submit]")
    page.wait(f"{TEXT}.includes('stopped by hand: disk is being replaced')", "#panel-explain")
    assert site.run(site.client.explain("a/b c%d")).state == "stopped"
    page.wait(f"{TEXT}.includes('stopped: disk is being replaced')", "#rows .why")
    page.wait("!document.querySelector('#do-unblock').hidden")
    picture(page, "panel")
    page.click("#do-unblock")
    page.wait("!document.querySelector('#do-block').hidden")
    assert site.run(site.client.explain("a/b c%d")).state != "stopped"
    page.click("#do-purge")
    assert "Remove 1 message of this queue" in page.wait(TEXT, "#purge-question")
    page.click("#purge-form [data-cancel]")
    assert site.run(site.client.explain("a/b c%d")).limits[1].pending == 1, "it asks first"
    page.click("#do-purge")
    page.click("#purge-form [type=submit]")
    page.wait(f"{TEXT} == '1 message removed.'", "#panel-status")
    page.wait(f"{TEXT}.startsWith('0')", "tr[data-name] .amount")


@pytest.mark.soak
def test_all_by_key(page: Browser, site: Site) -> None:
    site.run(site.client.apply("orders", limit=1000))
    page.wait(f"{ROWS}.length == 1")
    page.press("/")
    assert page.run("return document.activeElement.id") == "search"
    page.run("document.querySelector('#rows .link').focus()")
    page.press("\ue007")  # Enter
    page.wait("document.querySelector('#panel').open")
    page.wait(f"{TEXT} == 'orders'", "#panel-name")
    page.press("\ue00c")  # Escape
    page.wait("!document.querySelector('#panel').open")
    assert page.run("return document.activeElement.textContent") == "orders", "back where one was"


def test_what_people_wrote_is_text_and_never_markup(page: Browser, site: Site) -> None:
    """A name takes no '>'; a reason, a client's and a user's name take anything."""
    name = MARKUP.removesuffix(">")
    session = site.run(_fill(site.client, name))
    site.node.links = (link(1, client=MARKUP, user=MARKUP, destination=name, waiting_seconds=1.0, reason=MARKUP),)
    site.run(site.client.block(name, MARKUP))
    site.spawn(_wait_to_send(session, name))
    assert MARKUP in page.wait(f"({TEXT} ?? '').includes('<img') && {TEXT}", "#waiting li .why")
    assert page.run(f"return {TEXT}", "#links li").count(MARKUP) == 3
    assert page.run(f"return {TEXT}", "#rows .link") == name
    page.click("#rows .link")
    assert MARKUP in page.wait(f"({TEXT} ?? '').includes('<img') && {TEXT}", "#panel-explain")
    assert page.run("return document.images.length") == 1, "the page's own"
    assert page.run("return window.harmed") is None


@pytest.mark.soak
def test_consumers_at_capacity_links_and_nodes(page: Browser, site: Site) -> None:
    for empty in ("waiting", "consumers", "links", "nodes"):
        assert page.wait(TEXT, f"#{empty}-empty")

    async def hold() -> str:
        producer = await site.client.session("ann").producer("orders")
        consumer = await site.client.session("bob").consumer("orders", window=1)
        for _ in range(3):
            await producer.send(b"x")
        await anext(consumer)
        return consumer.id

    site.run(site.client.apply("orders", limit="1MiB"))
    consumer = site.run(hold())
    told = page.wait(TEXT, "#consumers li")
    assert consumer in told
    assert "at capacity" in told
    site.node.connections = 12
    site.node.links = (link(1), link(2, waiting_seconds=3.5, reason="orders is full", client="warehouse"))
    site.node.counters = Counters({"from client": 3}, {"from client": 30})
    site.run(NodeRegistry(site.client).beat(site.node.facts(), 1.0))
    assert "waits 3.5" in page.wait(TEXT, "#links li").replace("\u202f", " ")
    assert "node-1.example:5672" in page.wait(TEXT, "#nodes li")
    assert "12 connections" in page.run(f"return {TEXT}", "#nodes li")


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.soak), True], ids=["light", "dark"])
def test_nothing_is_cut_off_on_a_phone(page: Browser, site: Site, dark: bool) -> None:
    page.look_like(360, 740, dark=dark, scale=2)
    session = site.run(_fill(site.client, "x" * 120))
    site.run(_apply(site.client, orders="10MiB", mail=1))
    site.spawn(_wait_to_send(session, "x" * 120))
    site.node.links = (link(1, client="c" * 90, waiting_seconds=2.0, reason="r" * 200, destination="d" * 90),)
    page.wait(f"{ROWS}.length == 3")
    page.wait(TEXT, "#waiting li")
    page.wait(TEXT, "#links li")
    wide = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.run(wide) == [360, 360]
    picture(page, f"phone-{'dark' if dark else 'light'}")
    small = """return [...document.querySelectorAll('input:not([type=checkbox]), select, button:not(.link)')]
        .filter(one => one.offsetParent && one.offsetHeight < 36).map(one => one.outerHTML)"""
    assert page.run(small) == [], "large enough for a finger"
    page.click("#rows tr:last-child .link")
    page.wait(TEXT, "#panel-explain")
    assert page.run(wide) == [360, 360]
    assert page.run("const p = document.querySelector('#panel'); return p.scrollWidth <= p.clientWidth")


def test_words_stand_out_from_their_ground_in_light_and_dark(page: Browser, site: Site) -> None:
    """WCAG AA: 4.5 to 1."""
    session = site.run(_fill(site.client))
    site.spawn(_wait_to_send(session))
    page.wait(TEXT, "#waiting li")
    contrast = """
        const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
        const light = rgb => rgb.map(channel).reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
        const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
        const ground = of => {
          for (; of; of = of.parentElement) {
            const [r, g, b, a = 1] = parse(getComputedStyle(of).backgroundColor);
            if (a > 0) return [r, g, b];
          }
          return [255, 255, 255];
        };
        const poor = [];
        for (const one of document.querySelectorAll('body *')) {
          const own = [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
          if (!own || !one.offsetParent) continue;
          const [a, b] = [light(parse(getComputedStyle(one).color).slice(0, 3)), light(ground(one))];
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (ratio < 4.5) poor.push(`${one.tagName}.${one.className} ${one.textContent}: ${ratio.toFixed(2)}`);
        }
        return poor;
    """
    for dark in (False, True):
        page.look_like(1280, 900, dark=dark)
        picture(page, f"desktop-{'dark' if dark else 'light'}")
        assert page.run(contrast) == []


def test_every_control_has_a_name(page: Browser, site: Site) -> None:
    site.run(site.client.apply("orders", limit=1000))
    page.wait(f"{ROWS}.length == 1")
    unnamed = """return [
        ...document.querySelectorAll('input, select, button, [role=meter], [role=img], dialog')
    ].filter(
        one => !(one.ariaLabel || one.labels?.length || one.textContent.trim() || one.getAttribute('aria-labelledby'))
    ).map(one => one.outerHTML)"""
    assert page.run(unnamed) == []


@pytest.mark.soak
def test_many_destinations_are_shown_a_piece_at_a_time(page: Browser, site: Site) -> None:
    site.run(_apply(site.client, **{f"d{number:03}": 1000 for number in range(130)}))
    page.wait(f"{ROWS}.length == 100")
    page.wait(f"{TEXT} == '100 of 130 that fit, 130 in all'", "#shown")
    page.click("#more")
    page.wait(f"{ROWS}.length == 130")
    page.wait("document.querySelector('#more').hidden")


def test_it_asks_for_the_token_and_keeps_it_for_the_tab(
    browser: Browser, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    with Site(shared_servers.standalone(newest_server()), cleanup_namespace, token="s3cret") as site:
        site.run(site.client.apply("orders", limit=1000))
        browser.open(site.url)
        browser.wait("document.querySelector('#ask-token').open")
        browser.type("#token", "wrong")
        browser.click("#token-form [type=submit]")
        browser.wait(f"{TEXT} == 'That is not the token.'", "#token-status")
        browser.type("#token", "s3cret")
        browser.click("#token-form [type=submit]")
        browser.wait(f"{ROWS}.length == 1")
        browser.open(site.url)
        browser.wait(f"{ROWS}.length == 1")
        assert not browser.run("return document.querySelector('#ask-token').open")
        assert browser.run("return [document.cookie, localStorage.length]") == ["", 0]
        assert not [url for url in browser.requests() if "s3cret" in url]


def test_who_only_reads_is_offered_no_change(
    browser: Browser, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    """Mutant: `may_change` is not looked at, and each button leads to a refusal."""
    with Site(shared_servers.standalone(newest_server()), cleanup_namespace, "s3cret", "look") as site:
        site.run(_send(site.client, "orders", "one"))
        for token, hidden in (("look", True), ("s3cret", False)):
            browser.open(site.url)
            browser.run("sessionStorage.clear()")
            browser.open(site.url)
            browser.wait("document.querySelector('#ask-token').open")
            browser.type("#token", token)
            browser.click("#token-form [type=submit]")
            browser.wait(f"{ROWS}.length == 1")
            browser.click("#rows .link")
            browser.wait(f"{TEXT}.includes('orders')", "#panel-explain")
            for button in ("block", "purge"):
                assert browser.run(f"return document.querySelector('#do-{button}').hidden") is hidden, (token, button)
            browser.click("#do-browse")
            browser.wait("document.querySelectorAll('#messages li').length == 1")
            assert browser.run("return document.querySelectorAll('#messages button').length") == (0 if hidden else 2)


def test_old_figures_are_said_to_be_old_until_redis_is_back(browser: Browser, namespace: str) -> None:
    with RedisServer.start() as server, Site(server.url, namespace) as site:
        site.run(site.client.apply("orders", limit=1000))
        browser.open(site.url)
        browser.wait(f"{ROWS}.length == 1")
        server.sigstop()
        assert "did not answer" in browser.wait(TEXT, "#trouble")
        assert "old" in browser.run(f"return {TEXT}", "#status")
        assert browser.run(f"return {ROWS}") == ["orders"], "the last figures stay"
        picture(browser, "stale")
        server.sigcont()
        browser.wait(f"{TEXT} == 'live'", "#status")
        browser.wait("document.querySelector('#trouble').hidden")


def test_a_node_that_is_gone_is_said_to_be_and_found_again(browser: Browser, site: Site) -> None:
    browser.open(site.url)
    browser.wait(f"{TEXT} == 'live'", "#status")
    site.run(site.silence())
    assert "does not answer" in browser.wait(TEXT, "#trouble")
    site.run(site.restart())
    browser.wait(f"{TEXT} == 'live'", "#status")


@pytest.mark.soak
def test_a_hidden_page_asks_nothing(page: Browser, site: Site) -> None:
    hide = """Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});
              document.dispatchEvent(new Event('visibilitychange'))"""
    hide = f"const value = arguments[0]; {hide.replace('arguments[0]', 'value')}"
    page.run(hide, True)
    page.wait(f"{TEXT} == 'paused'", "#status")
    page.requests()
    site.run(site.client.apply("orders", limit=1000))
    page.run(hide, False)
    page.wait(f"{ROWS}.length == 1")


def test_names_are_those_that_redis_has(page: Browser, site: Site) -> None:
    """The page never shows an encoded name."""
    assert Address.of(site.client.namespace, "a b").key.endswith("a%20b}")
    site.run(site.client.apply("a b", limit=1000))
    page.wait(f"{ROWS}.join() == 'a b'")


def test_a_deadlock_is_drawn_as_a_ring_of_waits(page: Browser, site: Site) -> None:
    notes = NoteStore(site.client.store.server, site.client.namespace)
    ann, bob, x, y = (
        Party("session", "invoices~0a1b2c3d"), Party("session", f"shipping-{MARKUP}~4e5f"), Party("queue", "orders"),
        Party("queue", "shipments"),
    )  # fmt: skip
    cycle = Deadlock((Step(x, ann), Step(ann, y), Step(y, bob), Step(bob, x)))
    found = headgate.FoundDeadlock(cycle, "fail", "a send of session invoices~0a1b2c3d was made to fail", 3.2)
    assert page.run("return document.getElementById('deadlocks-part').hidden")
    site.run(_apply(site.client, orders="1MB", shipments="1MB"))
    site.run(notes.write("deadlocks", {found.id: found.note}))
    ring = page.wait("[...document.querySelectorAll('.ring .party')].map(one => one.innerText).join('|')")
    assert ring.replace("\n", " ").split("|")[0].startswith("queue")
    assert ["orders" in ring, "shipments" in ring, MARKUP in ring] == [True] * 3
    assert page.run("return document.querySelectorAll('.ring .arrow').length") == 4
    assert page.run("return !window.harmed")
    text = page.wait(TEXT, "#deadlocks li")
    assert "was made to fail" in text
    for width, name in ((1280, "wide"), (360, "phone")):
        page.look_like(width, 900)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), f"{name}: no sideways scrolling"
        page.run("document.getElementById('deadlocks-part').scrollIntoView()")
        picture(page, f"deadlock-{name}")
    page.look_like(1280, 900)
    page.click(".ring button.party")
    page.wait("document.getElementById('panel').open")
    assert page.wait(TEXT, "#panel-name") == "orders"
    page.click("#panel-close")
    site.run(notes.write("deadlocks", {found.id: ""}))
    page.wait("document.getElementById('deadlocks-part').hidden")


async def _send(client: headgate.Client, name: str, *bodies: str) -> list[str]:
    for each in (name, "orders"):
        await client.apply(each, limit="1MiB")
    async with client.session() as session:
        producer = await session.producer(name)
        return [(await producer.send(body)).id for body in bodies]


@WIDTHS
def test_single_messages_are_looked_at_moved_and_deleted_by_click(page: Browser, site: Site, width: int) -> None:
    """Mutants: it does not ask first; what was moved is still shown; a body is markup."""
    page.look_like(width, 900)
    ids = site.run(_send(site.client, "dead", MARKUP, "two", "three"))
    page.wait(f"{ROWS}.join() == 'dead,orders'")
    page.click("tr[data-name=dead] .link")
    page.wait("!document.querySelector('#do-browse').hidden")
    page.click("#do-browse")
    page.wait("document.querySelectorAll('#messages li').length == 3")
    assert MARKUP in page.wait(TEXT, "#messages li")
    assert not page.run("return window.harmed")
    page.click(f"#messages li[data-id='{ids[1]}'] [data-does=delete]")
    assert page.wait(TEXT, "#message-question") == f"Delete message {ids[1]}? It cannot be brought back."
    page.click("#message-cancel")
    assert len(site.run(_bodies(site.client, "dead"))) == 3, "it asks first"
    page.click(f"#messages li[data-id='{ids[1]}'] [data-does=delete]")
    page.click("#message-do")
    page.wait(f"{TEXT} == 'Message {ids[1]} is deleted.'", "#message-status")
    page.wait("document.querySelectorAll('#messages li').length == 2")
    page.click(f"#messages li[data-id='{ids[2]}'] [data-does=move]")
    page.type("#message-to", "nowhere")
    page.click("#message-do")
    page.wait(f"{TEXT}.includes('nowhere')", "#message-status")
    assert len(page.console()) == 1, "the browser says itself that it was refused"
    page.type("#message-to", "orders")
    picture(page, f"messages-{width}")
    page.click("#message-do")
    page.wait(f"{TEXT} == 'Message {ids[2]} is at orders.'", "#message-status")
    page.wait("document.querySelectorAll('#messages li').length == 1")
    assert site.run(_bodies(site.client, "dead")) == [MARKUP]
    assert site.run(_bodies(site.client, "orders")) == ["three"]
    assert page.run("return document.documentElement.scrollWidth") <= width, "nothing is cut off"


async def _bodies(client: headgate.Client, name: str) -> list[object]:
    return [one.body async for one in client.browse(name)]
