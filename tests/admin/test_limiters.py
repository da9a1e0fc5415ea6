"""Limiters as admin HTTP shows them: in the JSON API, in metrics and on the live page, with many keys and held off."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate
from tests.admin.browser import CHROMIUM, DRIVER, TEXT, Browser, picture
from tests.admin.site import Site
from tests.support.waiting import wait_until

LIMITS = {
    "requests": {"rate": "500/min"}, "tokens": {"rate": "200k/min"}, "in_flight": {"at_once": 4},
    "spend": {"quota": "1000000/day"},
}  # fmt: skip
OF_KEYS = {"tokens": {"rate": "20k/min"}, "in_flight": {"at_once": 3}}


class Busy:
    """A limiter of which all slots are held, three by one key; two keys wait."""

    def __init__(self, client: headgate.Client, name: str = "llm") -> None:
        self.client, self.name = client, name
        self.waits: list[asyncio.Task[headgate.Hold]] = []

    async def start(self) -> None:
        await self.client.apply(self.name, kind="limiter", limits=LIMITS, key_limits=OF_KEYS)
        self.session = self.client.session("shop")
        self.limiter = await self.session.limiter(self.name, in_hand=False)
        amounts = {"requests": 1, "tokens": 4000, "in_flight": 1, "spend": 250_000}
        self.holds = [await self.limiter.admit(key="tenant-7", **amounts) for _ in range(3)]
        self.holds.append(await self.limiter.admit(in_flight=1, key="tenant-8"))
        for key in ("gold-1", "gold-1", "tenant-9"):
            self.waits.append(asyncio.create_task(self._wait(key)))

        async def in_line() -> bool:
            return (await self.limiter.state()).waiting == 3

        await wait_until(in_line)

    async def _wait(self, key: str | None, band: int | None = None) -> headgate.Hold:
        return await self.limiter.admit(in_flight=1, key=key, band=band, timeout="unlimited")

    async def stop(self) -> None:
        for wait in self.waits:
            wait.cancel()
        await asyncio.gather(*self.waits, return_exceptions=True)
        await self.session.close()


@pytest.fixture
async def busy(client: headgate.Client) -> AsyncIterator[Busy]:
    busy = Busy(client)
    await busy.start()
    yield busy
    await busy.stop()


async def test_the_api_says_who_holds_it_who_waits_and_for_what(http: httpx.AsyncClient, busy: Busy) -> None:
    """Mutants: top keys are not ranked by what they hold; waiters behind others are counted for no limit."""
    answer = (await http.get("/api/v1/limiters")).json()
    (one,) = answer["limiters"]
    assert (answer["total"], one["name"], one["state"], one["cause"]) == (1, "llm", "blocked", "limit-at-once")
    assert one["waiting_for"] == {"in_flight": 3}
    assert one["used"] == 1.0
    view = one["view"]
    assert [limit["name"] for limit in view["limits"]] == ["requests", "tokens", "in_flight", "spend"]
    assert view["limits"][2] | {"reset_after": 0} == {
        "name": "in_flight", "form": "at_once", "limit": 4, "remaining": 0, "taken": 4, "withheld": 0, "reset_after": 0,
        "adapting": None,
    }  # fmt: skip
    assert view["limits"][3]["taken"] == 750_000
    assert (view["top"][0]["key"], view["top"][0]["held"]) == ("tenant-7", {"in_flight": 3})
    holder = view["holders"][0]
    assert (holder["session"], holder["key"], holder["amounts"]["in_flight"]) == (busy.session.id, "tenant-7", 3)
    assert [(wait["key"], wait["waiting"]) for wait in view["line"]] == [("gold-1", 2), ("tenant-9", 1)]
    assert (view["binding"], view["admitted"], one["looked_at"]) == ("in_flight", 4, "")
    overview = (await http.get("/api/v1/overview")).json()
    assert [limiter["name"] for limiter in overview["limiters"]["limiters"]] == ["llm"]
    told = (await http.get("/api/v1/destinations/llm/explain", params={"key": "tenant-7"})).json()
    assert "of key tenant-7: in_flight: 3 of 3 held at once" in told["text"]


async def test_metrics_are_of_limiters_and_limits_and_never_of_keys(http: httpx.AsyncClient, busy: Busy) -> None:
    """Mutants: the name of a key is a label; a hold-off is not a gauge."""
    await busy.limiter.hold_off(60, reason="429")
    text = (await http.get("/metrics")).text
    found = {
        (sample.name, sample.labels.get("limit", "")): (sample.value, set(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("headgate_limiter_", "headgate_limit_")) and "limit_bytes" not in sample.name
    }
    assert found["headgate_limit_taken", "in_flight"] == (4, {"namespace", "destination", "limit"})
    assert found["headgate_limit_most", "spend"][0] == 1_000_000
    assert found["headgate_limit_waiting", "in_flight"][0] == 3
    assert found["headgate_limit_withheld", "tokens"][0] == 200_000
    assert 0 < found["headgate_limiter_held_off_seconds", ""][0] <= 60
    assert found["headgate_limiter_admitted_total", ""] == (4, {"namespace", "destination"})
    assert found["headgate_limiter_refused_total", ""][0] == 0
    assert "tenant" not in text
    assert "gold" not in text


async def _name_bands(busy: Busy) -> None:
    busy.waits.append(asyncio.create_task(busy._wait(None, band=6)))
    busy.holds.append(await busy.limiter.admit(requests=1, band=0))

    async def in_line() -> bool:
        return (await busy.limiter.state()).waiting == 4

    await wait_until(in_line)


async def test_bands_are_told_once_one_was_named(http: httpx.AsyncClient, busy: Busy) -> None:
    """Mutant: a limiter without bands has a row of the usual one."""
    (one,) = (await http.get("/api/v1/limiters")).json()["limiters"]
    assert one["view"]["bands"] == []
    assert "headgate_limiter_band_waiting{" not in (await http.get("/metrics")).text
    await _name_bands(busy)
    expected = {
        ("waiting", "0"): 0, ("waiting", "3"): 3, ("waiting", "6"): 1,
        ("admitted_total", "0"): 1, ("admitted_total", "3"): 4, ("admitted_total", "6"): 0,
        ("shed_total", "0"): 0, ("shed_total", "3"): 0, ("shed_total", "6"): 0,
    }  # fmt: skip

    async def told() -> bool:
        found = {
            (sample.name.removeprefix("headgate_limiter_band_"), sample.labels["band"]): sample.value
            for family in text_string_to_metric_families((await http.get("/metrics")).text)
            for sample in family.samples
            if sample.name.startswith("headgate_limiter_band_")
        }
        return found == expected

    await wait_until(told)
    (one,) = (await http.get("/api/v1/limiters")).json()["limiters"]
    assert one["view"]["bands"][2] == {"band": 6, "waiting": 1, "admitted": 0, "shed": 0}


page_of = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver on PATH: run .ci/ensure-chromium as root"
)


async def _many(client: headgate.Client, keys: int) -> None:
    """Have a limiter with so many keys, without so many calls."""
    await client.apply(
        "mails", kind="limiter", limits={"slots": {"at_once": keys}}, key_limits={"slots": {"at_once": 9}}
    )
    key = f"hg:{{{client.namespace}/mails}}"
    server = client.store.server
    for begin in range(0, keys, 1000):
        words = [word for n in range(begin, min(begin + 1000, keys)) for word in (f"user-{n}", "slots:1")]
        await server.command(key.encode(), "HSET", f"{key}:keyed", *words)
    await server.command(key.encode(), "HSET", key, "levels", f"slots:{keys}")


@page_of
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.soak), 360])
def test_the_page_shows_limits_holders_and_the_bound_of_what_it_looked_at(
    page: Browser, site: Site, width: int
) -> None:
    """Mutants: a hold-off is not shown; many keys are said to be all; text is cut off on a phone."""
    page.look_like(width, 900)

    async def begin() -> Busy:
        busy = Busy(site.client)
        await busy.start()
        await _name_bands(busy)
        await _many(site.client, 100_000)
        await site.client.apply("http", kind="limiter", limits={"requests": {"rate": "10/s"}, "slots": {"at_once": 8}})
        await (await busy.session.limiter("http", in_hand=False)).hold_off(600, reason="503 from <b>upstream</b>")
        return busy

    busy = site.run(begin())
    try:
        shown = page.wait(f"/mails/.test({TEXT}) && /held off/.test({TEXT}) && /4 waiting/.test({TEXT}) && {TEXT}",
                          "#limiters")  # fmt: skip
        for words in (
            "llm",
            "4 of 4 in flight",
            "tenant-7",
            "gold-1",
            "503 from <b>upstream</b>",
            "100 k keys in use",
            "band 0: 0 waiting, 1 admitted · band 3: 3 waiting, 4 admitted · band 6: 1 waiting, 0 admitted",
        ):
            assert words in shown.replace("\u202f", " "), words
        assert "of 100000 keys" in shown
        assert page.run("return document.documentElement.scrollWidth") <= width, "nothing is cut off"
        picture(page, f"limiters-{width}")
        page.run("document.querySelector('#limiters-part').scrollIntoView()")
        picture(page, f"limiters-{width}-below")
        page.click("#limiters li .link")
        explained = page.wait(f"{TEXT}.includes('in_flight') && {TEXT}", "#panel-explain")
        assert busy.session.id in explained
        page.type("#panel-key", "tenant-7")
        page.click("#key-form button")
        page.wait(f"{TEXT}.includes('of key tenant-7: in_flight: 3 of 3')", "#panel-explain")
        picture(page, f"limiter-{width}")
    finally:
        site.run(busy.stop())
