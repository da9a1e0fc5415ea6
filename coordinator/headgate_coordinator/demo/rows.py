"""Says how each process of the demo is shown."""

import signal

from headgate_coordinator.demo.processes import Actor
from headgate_coordinator.demo.table import Rate, Row
from headgate_coordinator.demo.watch import Sample
from headgate_coordinator.operate.terminal import size


def row_of(actor: Actor, sample: Sample, rate: Rate, now: float) -> Row:
    """Return one process as it is now.

    Args:
        actor: the process.
        sample: the queue as it is.
        rate: of the process; it is brought up to date.
        now: on the monotonic clock.
    """
    record = actor.record
    messages, data = rate.update(now, record.messages, record.size)
    holds = _holds(actor, sample)
    return Row(
        actor.name, str(actor.pid or ""), record.messages, record.size, messages, data, holds, _state(actor, sample)
    )


def _holds(actor: Actor, sample: Sample) -> str:
    if actor.amqp:
        return ""  # its node holds it
    if actor.role == "consumer":
        return f"{sample.unsettled.get(actor.record.session, 0)} msgs"
    return size(sample.holds.get(actor.record.session, 0))


def _state(actor: Actor, sample: Sample) -> str:
    record = actor.record
    if actor.pid is None:
        return "not started yet"
    if actor.exit_code == -signal.SIGKILL:
        return "killed, leased" if record.session in sample.holds else "killed, reclaimed"
    if actor.exit_code is not None:
        return "ended"
    if not record.ready:
        return "starting"
    if actor.amqp:
        return f"at node {record.at}"
    if record.session in sample.waits:
        return f"waits {sample.waits[record.session]:.1f} s"
    return {"producer": "sending", "consumer": "receiving", "node": "serving"}[actor.role]
