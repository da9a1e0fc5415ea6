"""The answers of the JSON API about spool stores."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """`Answer` sets the form of every answer."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def read(cls, *facts: object, **fields: Any) -> Self:
        """Return the answer with these fields; others are attributes of the same name, of the first that has it."""
        for name in cls.model_fields.keys() - fields.keys():
            fields[name] = next(getattr(one, name) for one in facts if hasattr(one, name))
        return cls(**fields)


class Store(Answer):
    """A spool store keeps payloads for which memory has no room."""

    name: str
    url: str = Field(description="where its segments are, without secrets")
    limit: int | None = Field(description="bytes; null: unlimited")
    held: int = Field(description="bytes of its segments")
    leased: int = Field(description="bytes of room that sessions have and do not use yet")
    segments: int
    waiting: int = Field(description="sessions that wait for room in it")
    segment: int = Field(description="bytes of payload in one segment, about")
    when_full: str = Field(description="what sends do that find neither memory nor room here")
    percent: str = Field(description="where the limit comes from; empty: it is absolute")
    learning: bool = Field(description="its state may have been lost, and nothing is granted yet")
    origins: dict[str, str] = Field(description="field -> place in the policy")


class Stores(Answer):
    """The spool stores of the namespace."""

    stores: list[Store]
