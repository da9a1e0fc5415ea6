"""What a test left behind on a server that it shares with others."""

import redis

_SHOWN = 20


def before_delete(client: redis.Redis, key: bytes) -> None:
    """Look at a key that is about to be deleted: `tests.support.audited` puts itself here."""


_clients: dict[str, redis.Redis] = {}


def _client(url: str) -> redis.Redis:
    """Return the client of a server, connected once: it is asked after each test."""
    if url not in _clients:
        _clients[url] = redis.Redis.from_url(url, driver_info=None)
    return _clients[url]


def close() -> None:
    """Close all connections to servers that were looked at."""
    while _clients:
        _clients.popitem()[1].close()


def take_leftovers(url: str) -> list[str]:
    """Return every key of the server at `url`, and delete them all."""
    client = _client(url)
    if not client.dbsize():
        return []
    keys = [key.decode(errors="backslashreplace") for key in client.scan_iter(count=1000)]
    if keys:
        for key in client.scan_iter(match="hg:*:ledger", count=1000):
            before_delete(client, key)
        client.flushall()
    return sorted(keys)


def delete_namespace(url: str, namespace: str) -> None:
    """Delete every key of `namespace` on the server at `url`."""
    client = _client(url)
    keys = list(client.scan_iter(match=f"hg:{{{namespace}[/}}]*", count=1000))
    for key in keys:
        before_delete(client, key)
    with client.pipeline(transaction=False) as pipeline:  # keys of several slots
        for key in keys:
            pipeline.delete(key)
        pipeline.execute()


def describe(leftovers: dict[str, list[str]]) -> str:
    """Explain `leftovers`, url to keys, to whoever wrote the test."""
    lines = ["the test left keys behind: remove its destinations, or ask for `cleanup_namespace`"]
    for url, keys in leftovers.items():
        lines.append(f"{url}: {len(keys)}")
        lines += [f"  {key}" for key in keys[:_SHOWN]]
        lines += ["  ..."] if len(keys) > _SHOWN else []
    return "\n".join(lines)
