"""Scripts that tests change on their way are called as those of the product are."""

import pytest
import redis

from headgate.redis.keys import Address
from headgate.redis.scripts import FUNCTIONS, script
from tests.lua.place import Place
from tests.support.rewriting import AS_FUNCTIONS, Rewrite, RewritingServer, virtual_clock, watched

pytestmark = [
    pytest.mark.one_server,
    pytest.mark.skipif(not AS_FUNCTIONS, reason="HEADGATE_CALLS has all called as scripts"),
]


def needs_functions(direct: redis.Redis) -> None:
    if int(direct.info("server")["redis_version"].partition(".")[0]) < 7:
        pytest.skip("6.2 has no functions")


def figures(direct: redis.Redis) -> tuple[int, int]:
    """Return how many calls of functions were answered, and how many libraries were loaded."""
    calls, loads = (direct.info("commandstats").get(f"cmdstat_{name}", {}) for name in ("fcall", "function|load"))
    return calls.get("calls", 0) - calls.get("failed_calls", 0) - calls.get("rejected_calls", 0), loads.get("calls", 0)


@pytest.mark.parametrize("rewrites", [(), (virtual_clock,), (virtual_clock, watched)], ids=len)
async def test_every_library_is_taken_as_it_is_rewritten(redis_url: str, rewrites: tuple[Rewrite, ...]) -> None:
    """Breaks when one has more local names than a function may have: `admit` has all of them."""
    with redis.Redis.from_url(redis_url) as direct:
        needs_functions(direct)
        server = RewritingServer(redis_url, *rewrites)
        for name in sorted(FUNCTIONS):
            library = server._rewritten(script(name)).library
            assert library
            assert direct.function_load(library.source, replace=True).decode() == library.name
            direct.function_delete(library.name)


@pytest.mark.parametrize("rewrites", [(), (virtual_clock,), (virtual_clock, watched)], ids=len)
async def test_what_is_rewritten_is_called_as_a_function_whose_library_is_loaded_once(
    redis_url: str, namespace: str, rewrites: tuple[Rewrite, ...]
) -> None:
    """Breaks when a server takes no library that is rewritten: all goes by scripts then, and each client loads it."""
    with redis.Redis.from_url(redis_url) as direct:
        needs_functions(direct)
        for first in (True, False):
            server = RewritingServer(redis_url, *rewrites)
            await server.open()
            place = Place(server, Address.of(namespace, "orders"))
            await place.create()
            producer = place.producer("a")
            answered, loads = figures(direct)
            for _ in range(3):
                assert (await producer.ask(10)).code == "OK"
            after, loads_after = figures(direct)
            assert after - answered == 3
            assert first or loads_after == loads
            await server.forget(place.address, *place.sessions)
            await server.close()
