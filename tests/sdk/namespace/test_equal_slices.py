"""Of slices that hold alike, each gives up its part in turn for whoever lacks it."""

from typing import Any, cast

import pytest

from headgate.namespace.pool_refills import ALL
from headgate.namespace.pool_slices import Pools
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import PoolDraw, PoolStore, Share


@pytest.mark.parametrize(("first", "asked"), [("a", "b"), ("b", "c"), ("c", "a")])
async def test_of_equals_the_next_one_after_whoever_is_first_is_asked(
    first: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: always the same one."""
    shares = [Share(name, 1, 0 if name == first else 25, 0, 1) for name in "bca"]

    class Store:
        async def members(self, _: PoolAddress) -> list[Share]:
            return shares

    pools, debts = Pools(cast("PoolStore", Store()), "shop", 1000), []

    async def ask_back(_: PoolAddress, share: Share, *args: Any, **words: Any) -> int:
        debts.append((share.member, words.get("debt")))
        return 0

    monkeypatch.setattr(pools, "ask_back", ask_back)
    lacking = next(share for share in shares if share.member == first)
    await pools._take_back(PoolAddress.of("shop", "calls#0"), lacking, 25, PoolDraw("OK", 1, limit=50), {ALL})
    assert [member for member, debt in debts if debt == "owe"] == [asked]
