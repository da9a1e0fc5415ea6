"""A dependency limits taskiq's tasks: those that are not admitted in time go back to their queue."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated

from headgate._util.extras import extra
from headgate.charge import Charge, Cost, Held, Key, Source
from headgate.errors import CoordinatorUnavailable, CreditTimeout, DestinationFull

with extra("taskiq"):
    from taskiq import Context, TaskiqDepends


def admitted(
    on: Source | Callable[[], Source], *, key: Key = None, timeout: float | str = 5.0, **cost: Cost
) -> Callable[[Context], AsyncIterator[Held]]:
    """Return a dependency: ``held: Annotated[Held, TaskiqDepends(admitted(lambda: limiter, requests=1))]``.

    A task waits in line, which takes one of the worker's ``max_async_tasks`` and no thread; after the timeout it goes
    back to its queue.

    Args:
        on: a limiter, gate or bucket, or what returns it when a task comes.
        key: for whom; or what returns it, of the ``taskiq.TaskiqMessage``.
        timeout: seconds to wait in line before it goes back.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the message.

    Raises:
        InvalidValue: such a thing has no such amounts.
    """
    charge = Charge(on, key=key, timeout=timeout, settle=None, **cost)

    async def hold(context: Annotated[Context, TaskiqDepends()]) -> AsyncIterator[Held]:
        try:
            held = await charge.admit(context.message)
        except (CreditTimeout, DestinationFull, CoordinatorUnavailable):
            await context.requeue()
            raise  # not reached: a requeued task raises an error of its own
        try:
            yield held
        finally:
            held.release()

    return hold
