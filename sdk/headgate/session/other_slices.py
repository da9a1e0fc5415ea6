"""This module finds the other slices of a queue whose first one does not answer: consumers begin there meanwhile."""

import asyncio
import contextlib
from typing import Final

from headgate.core.names import slice_name
from headgate.namespace.registry import Registry
from headgate.redis.keys import Address

WITHIN: Final = 0.5
"""Seconds in which the next slices are to answer."""
_OF_THE_WHOLE: Final = ("policy", "policy_version")
"""A slice does not know all that these say of the whole: where that was lost, they are found out anew."""


async def has_other_slices(registry: Registry, whole: Address) -> bool:
    """Return whether a destination is a queue with slices, whose first one does not answer.

    One that is new to this client is known from now on by what its next slices say, which lie at other masters. They do
    not say over how many the next session is to be placed.
    """
    if "sliced" not in registry.fields(whole):
        parts = [Address.of(whole.namespace, slice_name(whole.name, number)) for number in (1, 2)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHIN):
                await asyncio.gather(*map(registry.refresh, parts), return_exceptions=True)
        known = [fields for part in parts if (fields := registry.fields(part)).get("kind") == "queue"]
        if newest := max(known, key=lambda fields: int(fields["of_slices"]), default=None):
            own = {name: value for name, value in newest.items() if name not in _OF_THE_WHOLE}
            registry.remember(whole, {**own, "sliced": newest["of_slices"]})
    fields = registry.fields(whole)
    return "sliced" in fields and fields.get("kind") == "queue"
