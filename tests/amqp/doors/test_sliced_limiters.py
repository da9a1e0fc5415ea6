"""A limiter over several slots, over a node: SDKs behind it and callers of HTTP share the limits of each key."""

import asyncio

import pytest

import headgate
from headgate.core.limiting.pins import part_of_hold, slice_of_key
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate.redis.stores.sliced_reads import every_slice
from tests.admin.test_limits import post, served
from tests.remote.grants import M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

FREE = {"slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}}
OF_KEY = {"slots": {"at_once": 2}, "tokens": {"rate": "1/week", "burst": 5}}
KIND = "urn:headgate:problem:"
KEYS = [f"tenant-{number}" for number in range(6)]


async def test_users_with_narrow_rights_share_the_limits_of_keys_while_these_move(
    redis_url: str, cleanup_namespace: str
) -> None:
    people = {"maker": {"llm": {P}}, "keeper": {"llm": {P, M}}, "other": {"other": {P, M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        of_all = {"slots": {"at_once": 12}, "tokens": {"rate": "1/week", "burst": 40}}
        await node.client.apply("llm", kind="limiter", limits=of_all, key_limits=OF_KEY, slices=3)
        async with sdk_as(node, "maker") as maker, maker.session() as session, sdk_as(node, "keeper") as keeper:
            llm = await session.limiter("llm", in_hand=False)
            holds = {key: await llm.admit(slots=2, tokens=3, key=key, timeout=GUARD) for key in KEYS}
            await keeper.apply("llm", slices=5)
            assert (await llm.attempt(slots=1, key="another")).rule == "all"  # type: ignore[union-attr]
            for key in KEYS:
                assert (await llm.attempt(slots=1, key=key)).limit == "slots"  # type: ignore[union-attr]
                assert (await llm.attempt(tokens=3, key=key)).limit == "tokens"  # type: ignore[union-attr]
                holds[key].release()
                (await llm.admit(slots=2, key=key, timeout=GUARD)).release()
        async with sdk_as(node, "other") as other, other.session() as session:
            for name in ("llm", "llm#1"):
                with pytest.raises((headgate.AccessDenied, headgate.InvalidName)):
                    await session.limiter(name)
        assert len(await every_slice(node.client.store.server, cleanup_namespace)) == 5


async def test_a_hold_over_http_is_renewed_settled_and_released_wherever_it_is(
    client: headgate.Client, redis_url: str, namespace: str
) -> None:
    await client.apply("llm", kind="limiter", limits=FREE, key_limits=OF_KEY)
    async with headgate.connect(redis_url, namespace=namespace) as second, served(client) as one, served(second) as two:
        before = {key: await _admitted(one, key) for key in KEYS}
        again = {key: await _admitted(one, key, {"Idempotency-Key": key}) for key in KEYS}
        await client.apply("llm", slices=4)
        for key in KEYS:
            assert (await post(two, "admit", 429, amounts={"slots": 1}, key=key)).json()["limit"] == "slots"
            assert await _admitted(two, key, {"Idempotency-Key": key}) == again[key], "the same again"
            await post(two, "release", hold=again[key])
            after = await _admitted(two, key, wait=GUARD)
            for hold in (before[key], after):
                assert (await post(one, "renew", hold=hold, ttl=60)).json()["ttl"] == 60
                assert (await post(two, "settle", hold=hold, used={"tokens": 0})).json()["counted"]
                assert (await post(two, "release", hold=hold)).json()["held"]
                assert not (await post(one, "release", hold=hold)).json()["held"]
            await post(one, "renew", 410, hold=after)
        state = (await two.get("/v1/limits/llm", params={"key": KEYS[0]})).json()
        assert state["key_limits"]["tokens"]["remaining"] == 3, "its key moved since the one of before was admitted"
        assert "slots" not in (await two.get("/v1/limits/llm")).headers.get("RateLimit-Policy", "")


async def _admitted(http: object, key: str, headers: dict[str, str] | None = None, wait: float = 0) -> str:
    body = {"amounts": {"slots": 1, "tokens": 1}, "key": key, "ttl": 30, "wait": wait}
    return str((await post(http, "admit", headers=headers, **body)).json()["hold"])  # type: ignore[arg-type]


async def test_a_hold_over_http_of_nothing_that_binds_all_keys_is_renewed(client: headgate.Client) -> None:
    limits = {"slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}, "others": {"at_once": 5}}
    await client.apply("llm", kind="limiter", limits=limits, slices=4)
    async with served(client) as http:
        for key in KEYS:
            hold = await _admitted(http, key)
            assert (await post(http, "renew", hold=hold, ttl=60)).json()["ttl"] == 60
            assert (await post(http, "release", hold=hold)).json()["held"]
        before = [await _admitted(http, key) for key in KEYS]
        await client.apply("llm", shadow_limits={"slots": {"at_once": 2}})
        after = [await _admitted(http, key) for key in KEYS]
        for hold in (*before, *after):
            assert (await post(http, "renew", hold=hold, ttl=60)).json()["ttl"] == 60, "a shadow limit ends nothing"
            assert (await post(http, "release", hold=hold)).json()["held"]


async def test_holds_over_http_share_limits_of_all_keys_and_are_over_without_their_part(
    client: headgate.Client, redis_url: str, namespace: str
) -> None:
    of_all = {"slots": {"at_once": 5}, "tokens": {"rate": "1/week", "burst": 40}}
    await client.apply("llm", kind="limiter", limits=of_all, key_limits=OF_KEY, slices=4)
    async with headgate.connect(redis_url, namespace=namespace) as second, served(client) as one, served(second) as two:
        held = {key: await _admitted((one, two)[number % 2], key) for number, key in enumerate(KEYS[:5])}
        for http in (one, two):
            body = (await post(http, "admit", 429, amounts={"slots": 1, "tokens": 1}, key=KEYS[5])).json()
            assert (body["limit"], body["rule"]) == ("slots", "all")
        waiting = asyncio.create_task(_admitted(two, KEYS[5], {"Idempotency-Key": "mine"}, wait=GUARD))
        for key in KEYS[:5]:
            assert (await post(two, "renew", hold=held[key], ttl=60)).json()["ttl"] == 60
            assert (await post(two, "settle", hold=held[key], used={"tokens": 0})).json()["counted"]
        assert (await post(two, "release", hold=held[KEYS[0]])).json()["held"]
        mine = await waiting
        assert await _admitted(one, KEYS[5], {"Idempotency-Key": "mine"}) == mine, "the same again"
        state = (await one.get("/v1/limits/llm", params={"key": KEYS[5]})).json()
        assert (state["limits"]["slots"]["remaining"], state["limits"]["tokens"]["remaining"]) == (0, 39)
        assert state["key_limits"]["slots"]["remaining"] == 1
        at_another = next(key for key in KEYS[1:5] if slice_of_key(key, 4))
        lost = HoldCall("release", part_of_hold(held[at_another]))
        store, first = LimiterStore(client.store.server), Address.of(namespace, "llm")
        assert (await store.admit(first, "x", seq=1, epoch=0, calls=[lost])).answers == ("ok",)
        await post(one, "renew", 410, hold=held[at_another])
        for hold in (mine, *(held[key] for key in KEYS[1:5] if key != at_another)):
            assert (await post(one, "release", hold=hold)).json()["held"]
        state = (await one.get("/v1/limits/llm", params={"key": at_another})).json()
        assert (state["limits"]["slots"]["remaining"], state["key_limits"]["slots"]["remaining"]) == (5, 2)


async def test_what_is_kept_for_better_bands_and_shed_goes_by_all_slices_for_users_and_over_http(
    redis_url: str, cleanup_namespace: str
) -> None:
    bands = {"batch-*": 6, "vip-*": 1}
    async with node_with(redis_url, cleanup_namespace, {"maker": {"llm": {P}}}) as node, served(node.client) as http:
        await node.client.apply(
            "llm", kind="limiter", limits={"slots": {"at_once": 400}}, bands=bands, reserve={"1": 0.25, "5": 0.5},
            shed={"7": 0.4}, slices=4,
        )  # fmt: skip
        async with sdk_as(node, "maker") as maker, maker.session() as session:
            llm = await session.limiter("llm")
            held = [await llm.admit(slots=50, key=key, timeout=GUARD) for key in KEYS[:4]]

            async def batch_is_refused() -> bool:
                hold = llm.try_admit(slots=1, key=KEYS[0])
                if not isinstance(hold, headgate.Hold):
                    return False
                assert not await llm.attempt(slots=1, key="batch-1")
                hold.release()
                return True

            await wait_until(batch_is_refused, timeout=GUARD, description="usual parts are in hand, and are not for it")
            for key in ("batch-1", "batch-2", "batch-3"):
                body = (await post(http, "admit", 429, amounts={"slots": 1}, key=key)).json()
                assert (body["type"], body["limit"], body["rule"]) == (f"{KIND}quota-exceeded", "slots", "all")
                body = (await post(http, "admit", 429, amounts={"slots": 1}, key=key, band=7)).json()
                assert (body["type"], body["band"], body["limit"]) == (f"{KIND}shed", 7, "slots")
                assert body["fill"] >= 0.5
            (await post(http, "admit", amounts={"slots": 90}, key="vip-1")).json()
            for hold in held:
                hold.release()


async def test_outcomes_over_http_count_once_wherever_a_hold_is(client: headgate.Client) -> None:
    """Mutant: an id that does not say the slice has its outcome counted where it is not held, or nowhere."""
    limits = {"slots": {"at_once": {"min": 9, "max": 64, "adapt": "gradient"}}, "tokens": {"rate": "unlimited"}}
    await client.apply("llm", kind="limiter", limits=limits, slices=4)
    async with served(client) as one, served(client) as two:
        for key in KEYS:
            for word, outcome in (
                (None, "ok"),
                ({"Idempotency-Key": key}, "ok"),
                ({"Idempotency-Key": f"{key}'"}, "overload"),
            ):
                hold = await _admitted(one, key, word)
                assert (await post(two, "release", hold=hold, outcome=outcome)).json()["held"]
            hold = await _admitted(one, key)
            await post(two, "settle", hold=hold, used={"tokens": 0}, release=True, outcome="ignore")
        found = (await one.get("/v1/limits/llm")).json()["limits"]["slots"]["adapting"]
        assert found["outcomes"] == {"ok": 12, "overload": 6, "ignore": 6}
