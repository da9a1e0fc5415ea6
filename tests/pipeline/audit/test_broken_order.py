"""Scripts that break an order on a real Redis: the audit of their ledger finds it, and finds nothing in a sound one."""

import pytest

from headgate.redis.keys import Address
from tests.lua.destinations.test_fair_queues import send
from tests.lua.limiters.test_by_key import ByKey
from tests.lua.limiters.trial import Limiter
from tests.lua.place import Place
from tests.pipeline.audit.test_overtaking import findings
from tests.pipeline.story import rows
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server
SOUND = ("?", "?")
NEVER_AGED = ("return found or bands[1], found ~= nil", "return bands[1], false")
DUE_LATE = ("- #bands() + 1", "+ #bands() + 1")


def broken(url: str, rule: tuple[str, str]) -> RewritingServer:
    """Return a server to which one rule goes as another."""
    return RewritingServer(url, virtual_clock, lambda source: source.replace(*rule))


@pytest.mark.parametrize("limit", ["calls rate 10 1", "calls at_once 1"])
@pytest.mark.parametrize(
    ("rule", "found"), [(SOUND, set()), (NEVER_AGED, {"band 1 waits for calls and was passed for too long"})]
)
async def test_of_a_limiter(limit: str, rule: tuple[str, str], found: set[str], redis_url: str, namespace: str) -> None:
    """Band 1 waits from the first on beside a saturated band 0, and by default is passed by one limit of it."""
    server = broken(redis_url, rule)
    await server.open()
    limiter = Limiter(server, Address.of(namespace, "llm"))
    await limiter.create(limit)
    await limiter.admit("ann.1", "calls=1~0")
    await limiter.admit("low.1", "calls=1~1", wait_ms=99_000)
    for number in range(2, 30):
        await limiter.admit(f"ann.{number}", "calls=1~0", wait_ms=99_000)
        await limiter.wait(100)
        await limiter.release(f"ann.{number - 1}")
        await limiter.one("renew", "low.1")
    ledger = await rows(Place(server, limiter.address))
    await server.forget(limiter.address, *limiter.sequence)
    await server.close()
    assert set(findings(ledger)) == found


async def test_a_policy_that_comes_while_a_line_stands_breaks_no_order(redis_url: str, namespace: str) -> None:
    """Mutant: whoever waited before it is of no band, and passes those who came after it."""
    server = broken(redis_url, SOUND)
    await server.open()
    limiter = Limiter(server, Address.of(namespace, "llm"))
    await limiter.create("calls at_once 1")
    await limiter.admit("ann.1", "calls=1")
    for number in range(2, 23):
        if number == 22:
            await limiter.change(aging="1")
        await limiter.admit(f"ann.{number}", "calls=1", wait_ms=99_000)
    for number in range(1, 23):
        await limiter.release(f"ann.{number}")
    ledger = await rows(Place(server, limiter.address))
    await server.forget(limiter.address, *limiter.sequence)
    await server.close()
    assert findings(ledger) == []


@pytest.mark.parametrize("policy", [{"aging": "0.25"}, {}], ids=["policy", "calls"])
@pytest.mark.parametrize(("rule", "breaks"), [(SOUND, False), (NEVER_AGED, True)], ids=["sound", "broken"])
async def test_of_a_gate_and_a_bucket(
    rule: tuple[str, str], policy: dict[str, str], redis_url: str, namespace: str, *, breaks: bool
) -> None:
    """As of a limiter: their own ledgers have who waits and who goes in the limiter beside them.

    Where no policy gives bands, who waited before anybody named one is not in the ledger. Mutants: nothing of it is
    there; of who did not wait the band is not.
    """
    for kind, amounts, limits in (
        ("gate", "bytes=1,calls=1", {"limit_bytes": "1", "limit_messages": "unlimited"}),
        ("bucket", "tokens=1", {"rate": "10", "burst": "1"}),
    ):
        server = broken(redis_url, rule)
        await server.open()
        keys = ByKey(server, Address.of(namespace, kind))
        await keys.apply(kind=kind, **limits, **policy)
        await keys.admit("ann.1", f"{amounts}~0")
        await keys.admit("usual.1", amounts, wait_ms=99_000)
        await keys.admit("low.1", f"{amounts}~1", wait_ms=99_000)
        for number in range(2, 30):
            await keys.admit(f"ann.{number}", f"{amounts}~0", wait_ms=99_000)
            await keys.wait(100)
            await keys.release(f"ann.{number - 1}")
            for waits in ("usual.1", "low.1"):
                await keys.one("renew", waits)
        ledger = await rows(Place(server, keys.own))
        await server.forget(keys.own)
        await server.forget(keys.address, *keys.sequence)
        await server.close()
        name = amounts.partition("=")[0]
        found = {f"band {band} waits for {name} and was passed for too long" for band in ((1, 3) if policy else (1,))}
        assert set(findings(ledger)) == (found if breaks else set()), kind


@pytest.mark.parametrize(
    ("rule", "found"),
    [(SOUND, set()), (DUE_LATE, {"what was next of band 7 was overtaken more often than the bound"})],
)
async def test_of_a_queue(rule: tuple[str, str], found: set[str], redis_url: str, namespace: str) -> None:
    """By default a message is overtaken by a hundred at the most."""
    server = broken(redis_url, rule)
    await server.open()
    place = Place(server, Address.of(namespace, "orders"))
    await place.create(limit=100_000, fair_by="priority")
    ann, cid = place.producer("ann"), await place.consumer("cid")
    await send(ann, "7", *("0" for _ in range(120)))
    for _ in range(4):
        await cid.accept(*await cid.fetch(30))
    ledger = await rows(place)
    await server.forget(place.address, "ann", "cid")
    await server.close()
    assert set(findings(ledger)) == found
