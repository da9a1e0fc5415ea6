"""A trigger is what the metadata of a ScaledObject asks for. Pure."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self, cast, get_args

from headgate import InvalidValue
from headgate.core.names import given_name
from headgate.units import parse_amount

Metric = Literal["messages", "bytes", "waiting"]
KEYS: Final = ("destination", "metric", "target", "activation", "within", "limit", "each")
"""Keys that say what is measured."""
SECRETS: Final = ("user", "password", "token")
"""Keys that say who asks; KEDA reads ``userFromEnv`` and so on from the workload's environment."""
_KEDA: Final = frozenset(
    {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsCertFile", "tlsClientCert", "tlsClientKey"}
)
"""Keys of KEDA's own, which it sends too."""
MOST_KEYS: Final = 32
LONGEST: Final = 1024
"""Characters of a value."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger holds the metadata of one trigger of a ScaledObject.

    Attributes:
        destination: whose backlog or line is measured.
        metric: ``messages`` or ``bytes`` that are pending, or who is ``waiting`` there.
        target: of it for each replica.
        activation: above which there is anything to do.
        within: the limiter, gate or bucket that all replicas work within; empty for none.
        limit: which of that limiter's limits; empty where it has one.
        each: of that limit, what one replica takes: at once, or in a second.
    """

    destination: str
    metric: Metric
    target: float
    activation: float = 0.0
    within: str = ""
    limit: str = ""
    each: float = 1.0

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> Self:
        """Return what metadata says.

        Raises:
            InvalidValue: it says something wrong, or too much; the key is named.
            InvalidName: a name that cannot be used.
        """
        if len(metadata) > MOST_KEYS or any(len(value) > LONGEST for value in metadata.values()):
            raise InvalidValue(
                f"use up to {MOST_KEYS} keys with values of up to {LONGEST} characters", setting="metadata"
            )
        known = {*KEYS, *SECRETS, *(f"{key}FromEnv" for key in SECRETS), *_KEDA}
        for key in metadata:
            if key not in known:
                raise InvalidValue(f"it is not one of {', '.join((*KEYS, *SECRETS))}", setting=key[:40])
        given = {key: metadata[key] for key in KEYS if metadata.get(key)}
        for key in ("destination", "target"):
            if key not in given:
                raise InvalidValue("it is missing", setting=key)
        metric = given.get("metric", "messages")
        if metric not in get_args(Metric):
            raise InvalidValue(f"{metric!r:.40} is not one of {', '.join(get_args(Metric))}", setting="metric")
        for key in ("limit", "each"):
            if key in given and "within" not in given:
                raise InvalidValue("it belongs to a limiter, gate or bucket; name that as `within`", setting=key)
        for key in ("destination", "within"):
            given_name(given.get(key, "any"))
        numbers = {key: _number(given[key], key) for key in ("target", "activation", "each") if key in given}
        for key, number in numbers.items():
            if number == 0 and key != "activation":
                raise InvalidValue("it is 0; use more", setting=key)
        return cls(
            given["destination"], cast(Metric, metric), within=given.get("within", ""), limit=given.get("limit", ""),
            **numbers,
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """The destination, and what its workers work within."""
        return (self.destination, self.within) if self.within else (self.destination,)

    @property
    def name(self) -> str:
        """The name of its metric: letters, digits and dashes, as Kubernetes' interface of metrics takes them."""
        return f"headgate-{self.metric}-{re.sub(r'[^A-Za-z0-9]+', '-', self.destination)[:100].strip('-')}"

    def capped(self, value: float, most: float | None) -> float:
        """Return what is reported: no more than has as many replicas as can work within the limit.

        Args:
            value: of the metric.
            most: of the limit, that all may take at once, or in a second; None for no limit.
        """
        return value if most is None else min(value, math.floor(most / self.each * (1 + 1e-9)) * self.target)


def _number(text: str, key: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = parse_amount(text, key)
    if not 0 <= number <= 1 << 52:
        raise InvalidValue(f"{text!r:.40}; use a number from 0 to 2**52, as in 100, 0.5, 10k or 64MiB", setting=key)
    return number
