"""Scripts that break an order on a real Redis: the audit of their ledger finds it, and finds nothing in a sound one."""

import pytest

from headgate.redis.keys import Address
from tests.lua.destinations.test_fair_queues import send
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
