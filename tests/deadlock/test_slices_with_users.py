"""Deadlocks at slices over a node: users that may send to one queue and receive from another are told too."""

import pytest

import headgate
from tests.deadlock.test_slices import rings_of_two
from tests.remote.grants import C, P
from tests.remote.people import node_with, sdk_as

PEOPLE = {"ann": {"x": {C}, "y": {P}}, "bob": {"x": {P}, "y": {C}}}


@pytest.mark.parametrize("deadlock", ["fail", "ticket"])
async def test_who_may_send_and_receive_and_no_more_is_told_at_its_slice(
    redis_url: str, cleanup_namespace: str, deadlock: str
) -> None:
    """Mutant: a tie of a consumer at a slice needs another right."""
    async with (
        node_with(redis_url, cleanup_namespace, PEOPLE) as node,
        sdk_as(node, "ann") as ann,
        sdk_as(node, "bob") as bob,
        headgate.connect(redis_url, namespace=cleanup_namespace) as owner,
    ):
        await rings_of_two(owner, ann, bob, deadlock)
