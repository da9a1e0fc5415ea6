"""Arguments of scripts as they should be, made from the types that the scripts declare."""

from typing import Any, Final

from headgate.redis.scripts import Script
from headgate.redis.text.arguments import FORMS, Choice, Type

SAMPLES: Final = {
    "id": "ann~1", "name": "orders%20x", "consumer": "ann~1.1", "subscription": "!red",
    "message": "1-10", "window": "10/unlimited/0.5", "segment": "disk/s1",
    "batch": "disk/s1 10 1", "hold": "ann~1.7", "amounts": "tokens=5", "word": "w", "rate": "0.5", "share": "80%",
    "limits": "a rate 1 1;b quota 5 day 0", "levels": "slots:3;tokens=900", "weights": "gold-*=4;*=1",
    "offsets": "0 3600 9 -7200",
    "life": "never+5000", "moments": "- 500 @9",
    "unwanted": "s=1,other=20 0 3", "selector": "a%20%3D%201",
    "site": "berlin", "part": "berlin/orders", "sites": "berlin=1000 paris=5",
}  # fmt: skip
"""One of each form."""


def good(choice: Choice) -> list[Any]:
    """Return what such a value may be, its ends included."""
    if choice.word is not None:
        return [choice.word]
    if choice.low is not None:
        return ["0.5"] if isinstance(choice.low, float) else [int(choice.low), int(choice.high)]
    form = next((name for name, (pattern, _) in FORMS.items() if pattern == choice.pattern), "")
    return [SAMPLES[form] if form else "a text"]  # a new form needs its sample


def goods(of: Type) -> list[Any]:
    return [value for choice in of.choices for value in good(choice)]


def plain(op: Script) -> list[Any]:
    """Return arguments that are all as they should be."""
    rest = op.declared.rest
    follow: list[Any] = []
    if rest and op.declared.fields:
        name, of = next(iter(op.declared.fields.items()))
        follow = [name, goods(of)[0]]
    elif rest:
        follow = [goods(of)[0] for of in rest.items]
    fixed = [goods(of) for _, of in op.declared.fixed]
    return [*("change" if "change" in values else values[0] for values in fixed), *follow]
