"""The settings of another broker: our word for each, and how it differs. The tables of documents are made from them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal

Verdict = Literal["kept", "differs", "not covered"]
KEPT: Final = "kept"
DIFFERS: Final = "differs"
NOT_COVERED: Final = "not covered"


@dataclass(frozen=True, slots=True)
class Word:
    """One setting of a product.

    Attributes:
        group: the table of the product's document that it is in.
        name: as the product writes it.
        ours: the key of a policy that says the same, or nothing.
        default: of the product.
        states: what the product's document says of it, and where.
        differs: how ours is different; without a word of ours, what to do instead.
    """

    group: str
    name: str
    ours: str = ""
    default: str = ""
    states: str = ""
    differs: str = ""

    @property
    def verdict(self) -> Verdict:
        """It says how a value of this word is kept, unless the value itself does not fit."""
        if not self.ours:
            return NOT_COVERED
        return DIFFERS if self.differs else KEPT


@cache
def words(product: str) -> dict[str, dict[str, Word]]:
    """Return the settings of a product, by group and name."""
    text = (resources.files(__package__) / product / "words.toml").read_text(encoding="utf-8")
    return {
        group: {name: Word(group, name, **facts) for name, facts in members.items()}
        for group, members in tomllib.loads(text).items()
    }
