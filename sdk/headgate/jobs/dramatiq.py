"""A middleware limits the actors of dramatiq: messages that are not admitted are put off, and keep no worker."""

from typing import Any

from headgate._util.extras import extra
from headgate.charge import Held, SyncCharge
from headgate.errors import InvalidValue
from headgate.figures import rounded
from headgate.jobs.requeueing import admit_or_put_off

with extra("dramatiq"):
    from dramatiq import Actor, Broker, MessageProxy, Middleware
    from dramatiq.middleware import MiddlewareError, SkipMessage


class NotCharged(MiddlewareError):
    """This error says that a message could not be charged; its cause says why.

    The message failed, and is retried as its actor says.
    """


class LimitedActors(Middleware):
    """`LimitedActors` is a middleware that limits actors.

    ``broker.add_middleware(LimitedActors())``; then ``@dramatiq.actor(limited=SyncCharge(..., requests=1))``.

    A message that is not admitted is enqueued again, for later; that is no retry, and is not counted as one. ``key``
    and amounts of a charge may be functions of the actor's arguments.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    @property
    def actor_options(self) -> set[str]:
        """The option of actors that it knows."""
        return {"limited"}

    def before_declare_actor(self, _broker: Broker, actor: Actor[Any, Any]) -> None:
        """See that an actor names a charge, where it names one.

        Raises:
            NotCharged: it names something else.
        """
        if (given := actor.options.get("limited")) is not None:
            try:
                SyncCharge.expected(given, "limited")
            except InvalidValue as error:
                raise NotCharged(f"{actor.actor_name}: {error}") from error

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Admit a message, or put it off.

        Raises:
            NotCharged: for whatever else goes wrong: dramatiq would log other errors, and run the actor all the same.
        """
        charge: SyncCharge | None = broker.get_actor(message.actor_name).options.get("limited")
        if charge is None:
            return
        try:
            decision = admit_or_put_off(charge, *message.args, **message.kwargs)
        except Exception as error:
            raise NotCharged(f"{message.actor_name} could not be charged: {error}") from error
        if isinstance(decision, float):
            broker.enqueue(message.copy(), delay=round(decision * 1000))
            raise SkipMessage(f"not admitted; again in {rounded(decision)} s")
        self._held[message.message_id] = decision

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Say what it used, and release it."""
        held = self._held.pop(message.message_id, None)
        if held is None:
            return
        try:
            if exception is None:
                broker.get_actor(message.actor_name).options["limited"].settled(held, result)
        finally:
            held.release()

    after_skip_message = after_process_message
