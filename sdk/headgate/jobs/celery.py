"""A base class limits Celery's tasks: those that are not admitted are put off, and keep no worker."""

from typing import Any, Final

from headgate._util.extras import extra
from headgate.charge import SyncCharge
from headgate.jobs.requeueing import admit_or_put_off

with extra("celery"):
    from celery import Task
    from celery.exceptions import Ignore

SHORTEST_DEFAULT: Final = 1800.0
"""Seconds of the default ``visibility_timeout`` of SQS; that of Redis is an hour."""


class LimitedTask(Task):  # type: ignore[misc]  # Celery ships no types
    """A limited task is charged at each call.

    ``@app.task(base=LimitedTask, limited=SyncCharge(limits.limiter("llm"), requests=1))`` declares one.

    A task that is not admitted is sent again with the same id and arguments, for later; that is no retry, and is not
    counted as one. It is for half the broker's ``visibility_timeout`` at most, for a worker keeps it meanwhile. Called
    directly, as a function, it waits.

    Attributes:
        limited: how each call is charged; its ``key`` and amounts may be functions of the task's arguments.
    """

    abstract = True
    limited: SyncCharge

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it while it is admitted; errors are the task's own, and those of :meth:`headgate.Limiter.admit`."""
        request, limited = self.request, SyncCharge.expected(getattr(self, "limited", None), "limited")
        if request.called_directly or request.is_eager:
            held = limited.admit(*args, **named)
            run = super().__call__
        else:
            run = self.run
            decision = admit_or_put_off(limited, *args, **named)
            if isinstance(decision, float):
                within = min(decision, self._redelivered_after() / 2)
                again = self.signature_from_request(request, args, named, countdown=within, retries=request.retries)
                again.apply_async()
                raise Ignore
            held = decision
        try:
            result = run(*args, **named)
            limited.settled(held, result)
            return result
        finally:
            held.release()

    def _redelivered_after(self) -> float:
        """Return the seconds after which a broker redelivers what a worker keeps, as if it had died."""
        options = self.app.conf.broker_transport_options or {}
        return float(options.get("visibility_timeout", SHORTEST_DEFAULT))
