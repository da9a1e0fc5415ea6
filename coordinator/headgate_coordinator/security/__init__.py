from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    BROWSE = "browse"
    MANAGE = "manage"


@dataclass(frozen=True)
class Identity:
    name: str

    def may(self, action, destination):
        return True


class Users:
    def anonymous(self):
        return Identity("anonymous")

    async def authenticate(self, name, password):
        return Identity(name)

    async def start(self):
        pass

    async def close(self):
        pass
