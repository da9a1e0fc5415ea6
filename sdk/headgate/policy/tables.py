"""The base of all tables of a policy document."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table that takes no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)
