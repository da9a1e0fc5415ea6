"""Admin HTTP lets callers look at single messages of a destination, move and delete them, as far as they may."""

import asyncio
import itertools
import logging
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from headgate import Browsed, Client, HeadgateError, MessageFormatError
from headgate.core.printable import printable
from headgate.message import decode
from headgate.redis.keys import Address
from headgate_coordinator.admin.answers.stores import Answer
from headgate_coordinator.admin.namespace_watch import NamespaceWatch
from headgate_coordinator.admin.operations import Call, Operation, Query
from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.security import Action

_log = logging.getLogger("headgate")
MOST: Final = 100
"""Messages that one answer shows."""
MOST_TEXT: Final = 500
"""Characters of a body, or of a header, that are shown."""
MOST_HEADERS: Final = 32
MOST_VALUES: Final = 4096
"""Values of a message that is read to be shown."""
ID: Final = r"^(\d{1,2}:)?\d{1,16}-\d{1,16}$"


class BrowseQuery(Query):
    """A browse query says which messages to list."""

    after: str = Field("", pattern=rf"^$|{ID}", description="the id of a message: those after it")
    limit: int = Field(20, ge=1, le=MOST, description="at most how many")


class DeleteRequest(BaseModel):
    """A delete request names the message to delete."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(pattern=ID, description="of the message")


class MoveRequest(DeleteRequest):
    """A move request names the message to move, and where to."""

    to: str = Field(min_length=1, max_length=255, description="name of another queue, or of a topic with subscriptions")


class BrowsedMessage(Answer):
    """A browsed message is a stored message, delivered or not."""

    id: str
    bytes: int = Field(description="that it counts for; of a spooled message, those of its payload")
    text: str | None = Field(description="the beginning of its body; null: it is not text, or cannot be read")
    trouble: str = Field(description="why it cannot be read; empty: it can")
    headers: dict[str, str] = Field(description="as text, the first of them")
    expires_ms: int | None = Field(description="ms of Redis' clock at which it expires; null: never")
    due_ms: int | None = Field(description="ms of Redis' clock before which it is not delivered; null: now")

    @classmethod
    def of(cls, message: Browsed) -> "BrowsedMessage":
        """Return a message as people look at it: the begin of what can be read."""
        text, trouble, headers = None, "", dict[str, str]()
        try:
            body, found = decode(message.stored, MOST_VALUES)
            headers = {
                printable(str(name), MOST_TEXT): printable(str(value), MOST_TEXT)
                for name, value in itertools.islice(found.items(), MOST_HEADERS)
            }
            text = printable(body if isinstance(body, str) else _text(body), MOST_TEXT)
        except MessageFormatError as error:
            trouble = str(error)
        except UnicodeDecodeError:
            pass  # bytes that are no text
        return cls(
            id=message.id, bytes=message.size, text=text, trouble=trouble, headers=headers,
            expires_ms=message.expires_ms, due_ms=message.due_ms,
        )  # fmt: skip


def _text(body: bytes) -> str:
    """Return the begin of a body as text; the last character of what is cut may be cut too."""
    begin = body[: 4 * MOST_TEXT]
    return begin.decode(errors="strict" if len(begin) == len(body) else "ignore")


class BrowsedMessages(Answer):
    """This answer lists stored messages of a destination, oldest first."""

    destination: str
    messages: list[BrowsedMessage]
    more: bool = Field(description="whether there may be more after the last")


class Deleted(Answer):
    """A message was deleted."""

    destination: str
    id: str


class Moved(Answer):
    """A message was moved."""

    destination: str
    id: str
    to: str


class Messages:
    """`Messages` runs the operations on single messages.

    Args:
        client: connected to Redis itself.
        watch: hears of changes.
    """

    def __init__(self, client: Client, watch: NamespaceWatch) -> None:
        self._client, self._watch = client, watch
        path = "/destinations/{name}/messages"
        self.operations: Final = (
            Operation("GET", path, "Show stored messages", self._browse, (BrowsedMessages,), BrowseQuery,
                      right=Action.BROWSE),
            Operation("POST", f"{path}/move", "Move one message of a queue to another destination", self._move,
                      (Moved,), body=MoveRequest, right=Action.MANAGE),
            Operation("POST", f"{path}/delete", "Delete one message", self._delete, (Deleted,), body=DeleteRequest,
                      right=Action.MANAGE),
        )  # fmt: skip

    async def _browse(self, call: Call) -> BrowsedMessages:
        query: BrowseQuery = call.query
        address = Address.given(self._client.namespace, call.name)
        if await self._client.store.snapshot(address, waiters=0, consumers=1) is None:
            raise Refused(404, "unknown-destination", f"there is no destination {call.name!r}", destination=call.name)
        found = self._client.browse(call.name, after=query.after or None, limit=query.limit)
        messages = []
        async for one in found:
            messages.append(BrowsedMessage.of(one))
            await asyncio.sleep(0)  # each may be large, and others have their turns between them
        return BrowsedMessages(destination=call.name, messages=messages, more=len(messages) == query.limit)

    async def _move(self, call: Call) -> Moved:
        wanted: MoveRequest = call.body
        if not call.access.may(Action.PRODUCE, wanted.to):
            raise Refused(403, "access-denied", call.access.refusal(Action.PRODUCE, wanted.to))
        try:
            await self._client.move_message(call.name, wanted.id, wanted.to)
        except HeadgateError as error:
            _log.info("%s did not move message %s of %r: %s", call.access.user, wanted.id, call.name, error)
            raise
        _log.warning("message %s of %r was moved to %r by %s, over admin HTTP", wanted.id, call.name, wanted.to,
                     call.access.user)  # fmt: skip
        self._watch.changed()
        return Moved(destination=call.name, id=wanted.id, to=wanted.to)

    async def _delete(self, call: Call) -> Deleted:
        wanted: DeleteRequest = call.body
        await self._client.delete_message(call.name, wanted.id)
        _log.warning("message %s of %r was deleted by %s, over admin HTTP", wanted.id, call.name, call.access.user)
        self._watch.changed()
        return Deleted(destination=call.name, id=wanted.id)
