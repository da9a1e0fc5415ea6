"""Settings of other brokers are put in our words here: one table a product, for importers, docs and hints of errors.

``<product>.toml`` has the settings of a product by the tables of its own document. No other says what they are here.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal

PRODUCTS: Final = {
    "artemis": "Apache Artemis",
    "activemq": "ActiveMQ Classic",
    "ems": "TIBCO EMS",
    "blazingmq": "BlazingMQ",
    "rabbitmq": "RabbitMQ",
    "nats": "NATS",
}
"""Names of products; where two have the same word, the first of them is meant."""
Verdict = Literal["kept", "differs", "not covered"]
KEPT: Final = "kept"
DIFFERS: Final = "differs"
NOT_COVERED: Final = "not covered"


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """A broker setting is one setting of a product, and what we have in its place.

    Attributes:
        group: the table of the product's document that it is in.
        name: as the product writes it.
        ours: the key of a policy that says the same, or nothing.
        default: of the product.
        states: what the product's document says of it, and where.
        differs: how ours is different; without a word of ours, what to do instead.
        hint: how values of ours are written, for those who wrote theirs.
    """

    group: str
    name: str
    ours: str = ""
    default: str = ""
    states: str = ""
    differs: str = ""
    hint: str = ""

    @property
    def verdict(self) -> Verdict:
        """It says how a value of this word is kept, unless the value itself does not fit."""
        if not self.ours:
            return NOT_COVERED
        return DIFFERS if self.differs else KEPT


@cache
def words(product: str) -> dict[str, dict[str, BrokerSetting]]:
    """Return the settings of a product, by group and name."""
    text = (resources.files(__package__) / f"{product}.toml").read_text(encoding="utf-8")
    return {
        group: {name: BrokerSetting(group, name, **facts) for name, facts in members.items()}
        for group, members in tomllib.loads(text).items()
    }
