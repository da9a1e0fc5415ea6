"""What a test left behind on a server that it shares with others."""

import redis

_SHOWN = 20


def before_delete(client: redis.Redis, key: bytes) -> None:
    """Look at a key that is about to be deleted: `tests.support.audited` puts itself here."""


def _client(url: str) -> redis.Redis:
    """Return a client that says nothing of itself as it connects: there is one for every test, and more."""
    return redis.Redis.from_url(url, driver_info=None)


def take_leftovers(url: str) -> list[str]:
    """Return every key of the server at `url`, and delete them all."""
    with _client(url) as client:
        keys = [key.decode(errors="backslashreplace") for key in client.scan_iter(count=1000)]
        if keys:
            for key in client.scan_iter(match="hg:*:ledger", count=1000):
                before_delete(client, key)
            client.flushall()
    return sorted(keys)


def delete_namespace(url: str, namespace: str) -> None:
    """Delete every key of `namespace` on the server at `url`."""
    with _client(url) as client:
        for key in client.scan_iter(match=f"hg:{{{namespace}[/}}]*", count=1000):
            before_delete(client, key)
            client.delete(key)


def describe(leftovers: dict[str, list[str]]) -> str:
    """Explain `leftovers`, url to keys, to whoever wrote the test."""
    lines = ["the test left keys behind: remove its destinations, or ask for `cleanup_namespace`"]
    for url, keys in leftovers.items():
        lines.append(f"{url}: {len(keys)}")
        lines += [f"  {key}" for key in keys[:_SHOWN]]
        lines += ["  ..."] if len(keys) > _SHOWN else []
    return "\n".join(lines)
