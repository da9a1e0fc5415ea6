"""Defaults are for unset options: the destination's settings, else those built in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.core.durability import MEMORY, Durability
from headgate.core.window import Window
from headgate.errors import InvalidValue
from headgate.options import DEFAULT_TIMEOUT, DEFAULT_WINDOW

CONSUMER_WINDOW: Final = Window(1000)


@dataclass(frozen=True, slots=True)
class Defaults:
    """`Defaults` holds what producers, gates and consumers at one destination do unless they say otherwise.

    Attributes:
        window: bytes of credit that a producer or gate keeps in hand.
        weight: its share.
        timeout: seconds that a send waits.
        rate: messages a second of a producer; None for no bound.
        byte_rate: bytes a second of a producer.
        consumer_rate: messages a second of a consumer.
        durability: that all have who write there, at least.
        fields: the settings, as the state spells them.
    """

    window: int = DEFAULT_WINDOW
    weight: int = 1
    timeout: float = DEFAULT_TIMEOUT
    rate: float | None = None
    byte_rate: float | None = None
    consumer_rate: float | None = None
    durability: Durability = MEMORY
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "Defaults":
        """Return what the settings of a destination say."""
        timeout = fields.get("producer_timeout_ms")
        return cls(
            int(fields.get("producer_window", DEFAULT_WINDOW)),
            int(fields.get("producer_weight", 1)),
            math.inf if timeout == "unlimited" else int(timeout) / 1000 if timeout else DEFAULT_TIMEOUT,
            _rate(fields, "producer_rate"),
            _rate(fields, "producer_byte_rate"),
            _rate(fields, "consumer_rate"),
            durability_of(fields),
            fields,
        )

    def consumer_window(self, subscription: str, *, durable: bool) -> Window:
        """Return the window of a consumer of a subscription, whose name is percent-encoded.

        The subscription's own settings come first, then those of durable ones, then those of all.
        """
        named = dict(entry.split("=", 1) for entry in self.fields.get("subscription_windows", "").split())
        text = named.get(subscription) or (durable and self.fields.get("durable_window"))
        text = text or self.fields.get("consumer_window")
        return Window.parse(text) if text else CONSUMER_WINDOW


def _rate(fields: Mapping[str, str], name: str) -> float | None:
    return float(fields[name]) if name in fields else None


def durability_of(fields: Mapping[str, str]) -> Durability:
    """Return the durability that settings say; ``memory`` where they say what only a later version knows."""
    text = fields.get("durability")
    try:
        return Durability.parse(text) if text else MEMORY
    except InvalidValue:
        return MEMORY
