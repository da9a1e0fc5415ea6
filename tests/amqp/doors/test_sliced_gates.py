"""A gate over several slots, over a node: SDKs behind it and callers of HTTP share its one limit."""

import pytest

import headgate
from headgate.policy import loads
from headgate.redis.stores.sliced_reads import every_slice
from tests.remote.grants import M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD


async def test_users_with_narrow_rights_take_permits_at_all_slices_and_others_at_none(
    redis_url: str, cleanup_namespace: str
) -> None:
    people = {"maker": {"calls": {P}}, "keeper": {"calls": {M}}, "other": {"other": {P, M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("calls", kind="gate", limit=1000, slices=3)
        async with sdk_as(node, "maker") as maker:
            for _ in range(6):  # each has to get what the slices before hold of the limit
                async with maker.session() as session, (await session.gate("calls")).admit(700, timeout=GUARD):
                    pass
            async with maker.session("a") as a, maker.session("b") as b:
                gates = [await session.gate("calls", window=10) for session in (a, b)]
                async with gates[0].admit(900, key="acme"):
                    with pytest.raises(headgate.CreditTimeout):
                        await gates[1].admit(200, timeout=0.3).__aenter__()
                assert await gates[0].hold_off(GUARD) == pytest.approx(GUARD)
                assert isinstance(await gates[1].attempt(20), headgate.Refused)
                assert await gates[1].hold_off(0) == 0
                (await gates[0].wait(20, GUARD)).release()
        async with sdk_as(node, "other") as other, other.session() as session:
            for name in ("calls", "calls#1"):
                with pytest.raises((headgate.AccessDenied, headgate.InvalidName)):
                    await session.gate(name)
        assert len(await every_slice(node.client.store.server, cleanup_namespace)) == 3
        policy = loads('[[destination]]\nmatch = "calls"\nkind = "gate"\nlimit = "2kB"\nslices = 5\n', "gates.toml")
        await node.client.apply_policy(policy)
        async with sdk_as(node, "maker") as maker:
            for _ in range(6):
                async with maker.session() as session, (await session.gate("calls")).admit(1900, timeout=GUARD):
                    pass
        assert len(await every_slice(node.client.store.server, cleanup_namespace)) == 5
