"""All tables of a policy document have this base."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table of a policy document takes no keys but its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
