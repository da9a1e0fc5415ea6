"""A backend is a way to the state: calls of scripts, reads of keys, and hints. Redis itself is one, :mod:`.server`.

Everything above is written against these two protocols, so that the same calls can go another way.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final, Protocol

from headgate.core.durability import Durability, WriteProgress
from headgate.redis.scripts import Script, script
from headgate.waits import Listener as WaitListener

Listener = Callable[[list[str]], None]
"""A callback that gets the words of a hint."""
Words = Container[str] | None
"""First words of the hints that a listener cares for; None for all of them."""
AGAIN: Final = "again"
"""The word of a hint that nobody sent: earlier hints on the channel are lost, for the connection is a new one."""


class ChannelListeners(dict[str, dict[Listener, Words]]):
    """Each channel has its listeners, in the order in which they came, and the words that they care for."""

    def add(self, channels: tuple[str, ...], listener: Listener, words: Words) -> list[str]:
        """Note that it listens; returns the channels that nobody listened to before."""
        fresh = [channel for channel in channels if channel not in self]
        for channel in channels:
            self.setdefault(channel, {})[listener] = words
        return fresh

    def drop(self, channels: tuple[str, ...], listener: Listener) -> list[str]:
        """Note that it listens no more; returns the channels that nobody listens to now."""
        for channel in channels:
            self.get(channel, {}).pop(listener, None)
        return [channel for channel in channels if self.get(channel) == {} and self.pop(channel) == {}]


class WakeUps(Protocol):
    """Wake-ups are hints, heard by a whole client.

    Nothing depends on them but speed: whoever waits also looks again by itself.
    """

    async def subscribe(self, channels: tuple[str, ...], listener: Listener, words: Words = None) -> None:
        """Call ``listener`` with the hints on these channels that it cares for; on loss of Redis, from its return on.

        One listener is called once for a hint, by the last ``words`` that it was subscribed with.
        """

    async def unsubscribe(self, channels: tuple[str, ...], listener: Listener) -> None:
        """Stop calling ``listener``."""

    def sure(self, channels: tuple[str, ...]) -> bool:
        """Return whether hints on these channels come for certain; the word ``again`` reports a later loss."""

    def tell(self, channel: str, words: list[str]) -> None:
        """Have those who listen to a channel here hear a hint, as if it had come."""

    async def close(self) -> None:
        """Stop listening."""


class Backend(Protocol):
    """A backend reaches one deployment of the state.

    Attributes:
        version: of Redis; empty until it is open.
        calls: script calls made so far; what a message costs is read off it.
        session_prefix: what ids of sessions are to begin with; known once it is open.
        reaches_stores: whether spool stores are for this process to read and write; False where nodes are in between.
        spools: whether payloads go to stores, by this process or by the nodes; False where these are too old.
        line_timeout: seconds for which a call may wait for those before it, where Redis answers.
        waited: hears of the client's waits, to tell whoever is in between; None where nobody is.
    """

    version: tuple[int, ...]
    calls: int
    line_timeout: float
    session_prefix: str
    reaches_stores: bool
    spools: bool
    waited: WaitListener | None

    async def open(self) -> None:
        """Connect once, to find out what is there.

        Raises:
            CoordinatorUnavailable: nothing answers, or it is too old.
            AccessDenied: it refuses the credentials.
        """

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script and return its reply; ``argv[0]`` None stands for the server's run id.

        Every script may be applied more than once with the effect of once, so a call may be repeated on the way.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: a command that the script needs is not allowed.
        """

    def promise(self, durability: Durability) -> None:
        """See that the deployment can say when a write is so safe.

        Raises:
            PolicyError: it cannot.
        """

    async def secure(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], durability: Durability, within_ms: int
    ) -> tuple[Any, WriteProgress]:
        """Call a script, and wait until what its connection wrote is as safe as that.

        Returns:
            Its reply, and how far what was written had come when that was enough, or the time was over.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: a command that the script needs is not allowed.
        """

    async def command(self, key: bytes, *args: Any) -> Any:
        """Send one read-only command to the server that holds a key.

        Raises:
            CoordinatorUnavailable: no answer.
        """

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send (key, command) pairs, those to one server in one write; returns the replies, an error as one of them.

        A command reads, or is the ``EVALSHA`` of a script: where its error says so, that is for :meth:`call`.

        Raises:
            CoordinatorUnavailable: no answer from one of the servers; the others may have done their part.
        """

    def place(self, key: bytes) -> str:
        """Return a name for where a key is: one that does not answer there says nothing of other places."""

    async def scan(self, pattern: str) -> list[str]:
        """Return the keys that match, over all masters."""

    async def everywhere(self, *args: Any) -> list[Any]:
        """Send one read-only command to each master; returns their answers.

        Raises:
            CoordinatorUnavailable: one does not answer.
            AccessDenied: the command is not allowed.
        """

    def wake_ups(self) -> WakeUps:
        """Return a way to hear hints; the caller closes it."""

    async def close(self) -> None:
        """Close all connections without waiting for anybody."""


async def call(server: Backend, name: str, keys: Sequence[bytes], rest: Iterable[Any] = (), /, **values: Any) -> Any:
    """Call a script by its name, with values by the names of its arguments; the run of Redis is none of these.

    Raises:
        CoordinatorUnavailable, AccessDenied: as :meth:`Backend.call`.
    """
    op = script(name)
    if op.arguments[0] == "run_id":
        values["run_id"] = None
    return await server.call(op, keys, op.argv(values, rest))
