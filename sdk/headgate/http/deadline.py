"""A request may say how long its caller waits for an answer: nobody stands in line for longer."""

import re
from collections.abc import Iterable
from typing import Any, Final

_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_GRPC: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_MS: Final = re.compile(r"[0-9]{1,10}")
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait=\"?([0-9]{1,8})\"?(?:$|[,;\s])", re.IGNORECASE)


def deadline_of(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """Return the seconds that a request has; None where it does not say, or says it in no form that is known.

    Args:
        headers: of ASGI. ``grpc-timeout`` is gRPC's, ``x-envoy-expected-rq-timeout-ms`` Envoy's, which sends it to
            servers behind it, and ``Prefer: wait=10`` is RFC 7240's. The shortest counts.
    """
    given = (_seconds(name.lower(), value.decode("latin-1").strip()) for name, value in headers)
    return min((seconds for seconds in given if seconds is not None), default=None)


def headers_of(request: Any) -> Iterable[tuple[bytes, bytes]]:
    """Return the headers of a scope of ASGI, or of a request that has one."""
    found: Iterable[tuple[bytes, bytes]] = getattr(request, "scope", request).get("headers", ())
    return found


def _seconds(name: bytes, value: str) -> float | None:
    match name:
        case b"grpc-timeout" if found := _GRPC.fullmatch(value):
            return int(found[1]) * _UNITS[found[2]]
        case b"x-envoy-expected-rq-timeout-ms" if _MS.fullmatch(value):
            return int(value) / 1000
        case b"prefer" if found := _WAIT.search(value[:200]):
            return float(found[1])
    return None
