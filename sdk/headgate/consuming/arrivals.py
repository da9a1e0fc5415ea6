"""Deliveries on their way into a sink: whole, for this consumer, and not dead."""

from collections.abc import Sequence

from headgate.consuming.settlements import Settlements
from headgate.consuming.sink import Sink
from headgate.core.fetching import Fetching
from headgate.core.segment import MARK, payload_size
from headgate.message import Message
from headgate.redis.keys import Address
from headgate.spool import Spooling
from headgate.spool.recall import GONE, Recall


class Arrivals:
    """Deliveries that answers bring to one feed and its sink, with payloads out of stores.

    Attributes:
        recall: those that wait for a payload, or behind one that does.
    """

    _machine: Fetching[Message]
    _settlements: Settlements

    def __init__(self, spooling: Spooling, address: Address, sink: Sink) -> None:
        self.recall = Recall(spooling, address, self._recalled)
        self._sink = sink

    def begin(self, machine: Fetching[Message], settlements: Settlements) -> None:
        """Count what comes by a machine, and have it settled there."""
        self._machine, self._settlements = machine, settlements

    def deliver(self, messages: Sequence[tuple[bytes, bytes, int]]) -> None:
        """Take what an answer brought: id, stored message and failed attempts of each."""
        settlements, recall = self._settlements, self.recall
        held, holding, deliver = self._machine.held, self._machine.holding, self._sink.deliver
        generation, selects = settlements.generation, settlements.selects
        for id_, stored, attempts in messages:
            if id_ in held:
                continue  # known: only its reply was repeated
            held[id_] = message = Message(settlements, generation, id_, stored, attempts)
            if attempts or stored[:1] == MARK or recall.line:  # it may be dead, or not be whole, or overtake one
                message.size = payload_size(stored)
                holding.deliver(message.size)
                if recall.put(message, attempts):
                    self._arrive(message, attempts, "")
            else:  # as nearly all are: it is here, whole
                holding.deliver(message.size)
                if selects is None or settlements.is_for(message):
                    deliver(message)
        if messages and holding.window.bytes != "unlimited":
            holding.fill(max(payload_size(stored) for _, stored, _ in messages))

    def _arrive(self, message: Message, attempts: int, trouble: str) -> None:
        """Take a delivery that is here with its payload, or that is known to be unreadable."""
        if attempts and self._settlements.is_dead(attempts):
            trouble = f"{attempts} attempts failed"
        if trouble == GONE:
            self._settlements.drop(message)
        elif trouble:
            self._settlements.bury(message, trouble, attempts)
        elif self._settlements.is_for(message):
            self._sink.deliver(message)

    def _recalled(self, message: Message, attempts: int, trouble: str) -> None:
        """Take a delivery whose payload came from a store, or that waited behind one."""
        self._arrive(message, attempts, trouble)
        self._sink.recalled()
