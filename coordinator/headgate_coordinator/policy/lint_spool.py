"""The linter knows traps of spooling: payloads that never go to the store, or stay where nobody else can read them."""

from collections.abc import Iterator

from headgate.core.names import decode_name
from headgate.core.policy import Policy, Resolved
from headgate.core.settings_table import STORES
from headgate.explain.destination_facts import MOST_REFERENCES
from headgate.explain.spool_causes import REFERENCE_BYTES
from headgate.policy.check import examples, place_of
from headgate_coordinator.policy.finding import Finding


def spool_traps(policy: Policy, mean: int | None) -> Iterator[Finding]:
    """Yield the traps of spooling; ``mean`` are bytes of a message on average, None when unknown."""
    for example in examples(policy):
        fields = example.resolved.fields
        if fields.get("when_full") == "spool" and fields.get("enforce") != "off":
            yield from _without_limit(example.resolved)
            yield from _references(policy, example.resolved, mean)
    for store in policy.stores:
        if store.fields["url"].startswith("memory://"):
            yield Finding(
                "HG118",
                store.origins["url"],
                "url",
                f"what is in {store.fields['url']} is in the memory of the process that wrote it: all others wait for "
                "payloads that they cannot read, and it is gone when that process ends",
                "use it in tests only; else file:// on a shared file system, or an object store",
            )


def _without_limit(resolved: Resolved) -> Iterator[Finding]:
    place = place_of(resolved.origins["when_full"])
    limited = resolved.fields.get("limit_bytes", "").isdigit() or resolved.fields.get("pools")
    if not limited and not place.startswith("preset "):  # that has no limit, and says so
        yield Finding(
            "HG116",
            place,
            "when_full",
            "without a limit in bytes memory is never full, so nothing is spooled: messages pile up until Redis itself "
            "is full, and then everything stalls",
            "give limit = { bytes = ... }",
        )


def _references(policy: Policy, resolved: Resolved, mean: int | None) -> Iterator[Finding]:
    limit = resolved.fields.get("limit_reference_bytes") or str(MOST_REFERENCES)
    names = {decode_name(resolved.fields.get(key, "")) for key in STORES}
    origin = resolved.origins.get("limit_reference_bytes") or resolved.origins["when_full"]
    for store in policy.stores:
        holds = store.fields["limit_bytes"]
        if store.name not in names or not mean or not limit.isdigit() or not holds.isdigit():
            continue
        needed = int(holds) // mean * REFERENCE_BYTES
        if needed > int(limit) and not place_of(origin).startswith("preset "):
            yield Finding(
                "HG117",
                place_of(origin),
                "limit_references",
                f"store {store.name!r} has room for {int(holds) // mean} messages of {mean} bytes, whose references "
                f"take {needed} bytes of memory, and these may have {limit}: senders wait while the store has room",
                "raise limit_references, or lower the limit of the store",
            )
