"""Two engines that talk to each other in memory, and a handler that writes down what it is told."""

from dataclasses import dataclass, field
from typing import Any

from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import Fate, Link, Outcome, Terminus


@dataclass
class Notes:
    """A handler that accepts every link, and everything that comes."""

    engine: Engine = field(init=False)
    links: list[Link] = field(default_factory=list)
    messages: list[Incoming] = field(default_factory=list)
    outcomes: list[tuple[Outcome, str]] = field(default_factory=list)
    gone: list[Link] = field(default_factory=list)
    over: list[tuple[str, str]] = field(default_factory=list)
    flows: int = 0
    runs: list[int] = field(default_factory=list)
    """How many outcomes came in each call."""
    credit: int = 100
    accepts: bool = True

    def opened(self) -> None:
        self.engine.open()

    def attached(self, link: Link) -> None:
        self.links.append(link)
        link.accept(link.source, link.target, max_message=self.engine.limits.message)
        if link.receives:
            link.set_credit(self.credit)

    def answered(self, link: Link) -> None:
        self.links.append(link)

    def received(self, link: Link, messages: list[Incoming]) -> None:
        self.messages += messages
        if self.accepts:
            for _, delivery in messages:
                if delivery is not None:
                    link.settle(delivery)

    def flowed(self, link: Link) -> None:
        self.flows += 1

    def settled(self, link: Link, fates: list[Fate]) -> None:
        self.outcomes += [(outcome, reason) for _, outcome, reason, _ in fates]
        self.runs.append(len(fates))

    def detached(self, link: Link) -> None:
        self.gone.append(link)
        link.user = link.condition[0]  # the library forgets it with the link

    def closed(self, condition: str, description: str) -> None:
        self.over.append((condition, description))


class Pair:
    """A client and a server; :meth:`talk` carries bytes until both have said everything."""

    def __init__(self, limits: Limits | None = None, client_limits: Limits | None = None) -> None:
        self.client, self.server = Notes(), Notes()
        self.client.engine = Engine(
            self.client, server=False, container="a-client", limits=client_limits or Limits(), hostname="a-host"
        )
        self.server.engine = Engine(self.server, server=True, container="a-server", limits=limits or Limits())
        self.client.engine.open()
        self.talk()

    def talk(self) -> None:
        while True:
            there = b"".join(self.client.engine.outgoing())
            back = b"".join(self.server.engine.outgoing())
            if not there and not back:
                return
            if there:
                self.server.engine.receive(there)
            if back:
                self.client.engine.receive(back)

    def sender(self, name: str = "s", **said: Any) -> Link:
        """A link on which the client sends, attached."""
        link = self.client.engine.attach(self.client.engine.session(), name, receives=False, **said)
        link.accept(Terminus("here"), Terminus("orders"))
        self.talk()
        return link

    def receiver(self, name: str = "r", source: Terminus | None = None) -> Link:
        """A link on which the client receives, attached."""
        link = self.client.engine.attach(self.client.engine.session(), name, receives=True)
        link.accept(source or Terminus("orders"), Terminus("here"))
        self.talk()
        return link

    def free(self) -> None:
        self.client.engine.free()
        self.server.engine.free()
