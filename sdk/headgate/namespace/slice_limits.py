"""A slice has the settings of its destination: what it does not know of, it does not keep to."""

from collections.abc import Mapping
from typing import Final

from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.settings import FIELD_OF

_SHARED: Final = tuple(dict.fromkeys(name for name in FIELD_OF.values() if name != "slices"))
_TRIES: Final = 16


def alike(part: Mapping[str, str], whole: Mapping[str, str]) -> bool:
    """Return whether a slice has the settings of its whole destination, as far as these are known."""
    return not whole or all(part.get(name, "") == whole.get(name, "") for name in _SHARED)


async def agree(server: Backend, part: Address) -> None:
    """Give a slice the settings of its whole destination, where it has others.

    The whole is read after the slice, and both once more after that: whoever changes them changes it first. Where a
    newer policy came to the slice first, it stays as it is.

    Raises:
        AccessDenied: the caller may not change it: others do.
        CoordinatorUnavailable: Redis does not answer; call again.
    """
    names = (*_SHARED, "policy_version", "policy")
    for _ in range(_TRIES):
        found = [await server.command(at.shared[0], "HMGET", at.shared[0], *names) for at in (part, part.whole)]
        own, whole = [
            {name: value.decode() for name, value in zip(names, values, strict=True) if value is not None}
            for values in found
        ]
        if not own or not whole or alike(own, whole):
            return
        settings = {name: whole.get(name, "") for name in names if name in own or name in whole}
        code, _ = await Store(server).apply(part, settings, mode="change", ttl_ms=0)
        if code == "OLD":
            return
