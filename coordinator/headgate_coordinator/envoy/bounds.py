"""Requests of proxies are bounded here, as are the keys of values that their clients choose."""

import hashlib
from typing import Final

from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from headgate import InvalidValue
from headgate.core.limiting.amounts import MAX_KEY_BYTES
from headgate.core.limits.descriptor import LONGEST, MOST_ENTRIES

MOST_DESCRIPTORS: Final = 16
MOST_HITS: Final = 1 << 20
BEGINNING: Final = 100
"""Bytes of a long value that its key begins with."""
EMPTY: Final = "(empty)"
"""The key of an empty value."""


def check(request: RateLimitRequest) -> None:
    """See that a request has a bound in all that it says."""
    if not 0 < len(request.domain) <= LONGEST:
        raise InvalidValue(f"use 1 to {LONGEST} characters", setting="domain")
    if not 0 < len(request.descriptors) <= MOST_DESCRIPTORS:
        raise InvalidValue(f"use 1 to {MOST_DESCRIPTORS}", setting="descriptors")
    for descriptor in request.descriptors:
        if len(descriptor.entries) > MOST_ENTRIES:
            raise InvalidValue(f"use up to {MOST_ENTRIES} in one descriptor", setting="entries")
        if any(len(entry.key) > LONGEST for entry in descriptor.entries):  # values are what clients of a proxy send
            raise InvalidValue(f"use keys of up to {LONGEST} characters", setting="entries")


def key_of(value: str) -> str:
    """Return the key of a value. Clients choose that, and an error would let them through where a proxy fails open."""
    raw = value.encode()
    if len(raw) > MAX_KEY_BYTES:
        return f"{raw[:BEGINNING].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()}"
    return value or EMPTY


def hits_of(request: RateLimitRequest, descriptor: RateLimitDescriptor) -> int:
    """Return how many hits it is; a descriptor may say 0, a request that says nothing says 1."""
    hits = descriptor.hits_addend.value if descriptor.HasField("hits_addend") else request.hits_addend or 1
    if hits > MOST_HITS:
        raise InvalidValue(f"{hits}; use up to {MOST_HITS}", setting="hits_addend")
    return int(hits)
