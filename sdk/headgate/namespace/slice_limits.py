"""A slice has the limit in messages and the rates of its destination: what it does not know of, it does not keep to."""

from typing import Final

from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.store import Store

_FIELD: Final = "limit_messages"
_UNLIMITED: Final = b"unlimited"


async def agree(server: Backend, part: Address) -> None:
    """Give a slice the limit in messages of its whole destination, where it has none.

    The whole is read once more after that: whoever takes the limit away takes it from there first.

    Raises:
        AccessDenied: the caller may not change it: others do.
        CoordinatorUnavailable: Redis does not answer; call again.
    """
    given = False
    while True:
        whole, own = [await server.command(at.shared[0], "HGET", at.shared[0], _FIELD) for at in (part.whole, part)]
        if whole in (None, own) or own is None or (whole == _UNLIMITED and not given):
            return
        await Store(server).apply(part, {_FIELD: whole.decode()}, mode="change", ttl_ms=0)
        given = True


async def agree_on_rate(server: Backend, part: Address, kind: str) -> None:
    """Give a slice a rate of its whole destination, where it has another, or none.

    Raises:
        AccessDenied: the caller may not change it: others do.
        CoordinatorUnavailable: Redis does not answer; call again.
    """
    names = (f"{kind}_rate", f"{kind}_burst")
    whole, own = [await server.command(at.shared[0], "HMGET", at.shared[0], *names) for at in (part.whole, part)]
    if whole[0] is not None and own != whole:
        fields = {name: (value or b"").decode() for name, value in zip(names, whole, strict=True)}
        await Store(server).apply(part, fields, mode="change", ttl_ms=0)
