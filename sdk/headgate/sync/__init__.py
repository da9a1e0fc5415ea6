"""Threads are offered every name of :mod:`headgate`, without ``await``.

    with headgate.sync.connect("redis://localhost:6379", namespace="shop") as client, client.session("api") as session:
        producer = session.producer("orders")
        receipt = producer.send(b"...", timeout=5)
        later = producer.post(b"...")                       # waits for credit only; later.result(5) is the receipt
        for message in session.consumer("orders"):
            message.accept()
        with session.gate("billing-api").admit(len(body), timeout=2):
            requests.post(...)

One background thread runs the event loop of the async client, and all objects of a client may be used from any thread.
Work that needs Redis, or must wait, is handed to that thread and waited for. Three frequent things are not:

- **Admissions.** ``try_admit``, ``admit`` with credit in hand and ``release`` are arithmetic on the very credit line
  that the loop thread asks, renews and gives back with; a copy of the balance would have to be fetched back when
  others wait. So the line is one that both may change: each of its methods takes its lock
  (:class:`headgate.sync.gate.SharedCreditLine`), and a gate takes the same lock around its few lines. Nothing that
  must hold together is split over two holds of the lock: whether credit is free and taking it are one step, and so are
  "nobody uses any" and giving all of it back. The rest that the loop thread reads between (how much to ask for) may be
  a moment old, as any answer from Redis may. Nobody calls out or waits inside the lock.
  A permit that is put back while somebody waits, here or elsewhere, tells the loop thread; it cannot be missed, since
  whoever begins to wait looks once more after it is in line.
  A limiter hands out of what it has in hand likewise, under one lock for all its keys; what it does not have in hand is
  decided on the loop thread.
- **Settlements** without ``confirm`` are queued, and the loop thread is woken once for all that are queued.
- **Messages** that have arrived are handed over all at once, and then received without a word to the loop thread.

A client does not survive a fork: connect in the child.
"""

from headgate.sync.client import Bucket, Client, Session, connect
from headgate.sync.consumer import Consumer, Message
from headgate.sync.gate import Gate, Permit
from headgate.sync.limiter import Hold, Limiter
from headgate.sync.per_process import Opener, PerProcess
from headgate.sync.producer import PendingReceipt, Producer

__all__ = [
    "Bucket",
    "Client",
    "Consumer",
    "Gate",
    "Hold",
    "Limiter",
    "Message",
    "Opener",
    "PendingReceipt",
    "PerProcess",
    "Permit",
    "Producer",
    "Session",
    "connect",
]
