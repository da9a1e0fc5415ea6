"""Limits of calls through LiteLLM: tokens are reserved before a call, and settled by what its answer used."""

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Mapping
from typing import Any, Final

from headgate._util.extras import extra
from headgate.charge import Charge, Held
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter

with extra("litellm"):
    from litellm import token_counter
    from litellm.integrations.custom_logger import CustomLogger

ANSWER: Final = 1024
"""Tokens that :func:`reserved` takes an answer for where a call does not bound it."""
_log: Final = logging.getLogger("headgate.llm")


def reserved(call: Mapping[str, Any]) -> int:
    """Return the tokens of a call's prompt, as LiteLLM counts them, and the most that its answers may have."""
    prompt = call["messages"]
    chat = isinstance(prompt, list) and all(isinstance(one, dict) for one in prompt)
    counted = {"messages": prompt} if chat else {"text": str(prompt)}
    most = _positive(call, "max_completion_tokens", "max_tokens", "max_output_tokens")
    return int(token_counter(model=call["model"], **counted)) + (most or ANSWER) * (_positive(call, "n") or 1)


def _positive(call: Mapping[str, Any], *names: str) -> int | None:
    numbers = (call.get(name) for name in names)
    return next((number for number in numbers if isinstance(number, int) and number > 0), None)


def used(answer: Any) -> int | None:
    """Return the tokens that an answer says it used; None where it says nothing."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else getattr(answer, "usage", None)
    if usage is None:
        return None
    read = usage if isinstance(usage, Mapping) else vars(usage)
    parts = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    return read.get("total_tokens") or sum(read.get(part) or 0 for part in parts)


class LimitedModels(CustomLogger):  # type: ignore[misc]  # LiteLLM is not there where types are checked
    """`LimitedModels` limits models.

    ``litellm.callbacks = [LimitedModels(Charge(limiter, requests=1, tokens=reserved))]`` has them wait.

    It has each attempt of ``acompletion``, ``aembedding`` and other functions with ``async`` wait, those of a
    ``Router`` too, and holds it until the answer, or its stream, ends. LiteLLM asks nobody before functions without
    ``async``: those are not limited, which is logged once.

    A call that failed, or that a cache answered, gives its tokens back. A stream that nobody reads to its end, and a
    call that was cancelled, used what they reserved.

    Args:
        charge: of a limiter, gate or bucket of this event loop; its key and amounts may be functions of a call's
            arguments, where ``model`` and ``messages`` (or what is embedded) always are. With a ``settle`` of its own
            that one says what an answer used.
        tokens: name of the limit that is settled by ``usage``, if the charge takes of it.

    Raises:
        InvalidValue: it is no such charge.
    """

    def __init__(self, charge: Charge, *, tokens: str = "tokens") -> None:
        super().__init__()
        self._charge, self._tokens = Charge.expected(charge, "charge"), tokens
        self.number = id(self)  # LiteLLM takes loggers of a class whose public numbers are the same for one
        self._held: dict[str, tuple[Held, weakref.finalize[..., Any]]] = {}
        self._warned = False

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:  # noqa: ARG002
        """Wait until an attempt is admitted; errors are those of :meth:`headgate.Limiter.admit`, also the caller's."""
        call_id, its = kwargs["litellm_call_id"], kwargs["litellm_logging_obj"]
        if call_id in self._held:
            return  # one function of LiteLLM calls another for the same call
        held = await self._charge.admit({"model": its.model, "messages": its.messages, **kwargs})
        # Nothing reports what is cancelled or left: then only the object that would log it goes away, in any thread.
        left = weakref.finalize(its, self._leave, asyncio.get_running_loop(), call_id)
        left.atexit = False
        self._held[call_id] = held, left

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Settle and release a call whose answer is there; one that says no usage is ended when it is logged."""
        if used(response) is not None:
            self._end(request_data["litellm_call_id"], response)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, **_: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Release an attempt that failed, and give back its tokens."""
        self._end(request_data["litellm_call_id"], settle={self._tokens: 0})

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Settle and release a call whose stream has ended, or that a cache answered."""
        if kwargs.get("cache_hit"):
            self._end(kwargs["litellm_call_id"], settle=dict.fromkeys(self._charge.cost, 0))
        else:
            self._end(kwargs["litellm_call_id"], response_obj)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any  # noqa: ARG002
    ) -> None:  # fmt: skip
        """Release a call whose stream broke: nobody knows what it used."""
        self._end(kwargs["litellm_call_id"], settle={})

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """Say that a call was not limited, for LiteLLM calls this for functions without ``async`` only."""
        if not self._warned:
            self._warned = True
            _log.warning("calls without async are not limited; use litellm.acompletion")

    def _end(self, call_id: str, answer: Any = None, *, settle: Mapping[str, int] | None = None) -> None:
        held, left = self._held.pop(call_id, (None, None))
        if held is None or left is None:
            return
        left.detach()
        try:
            if settle is None and self._charge.settle is not None:
                self._charge.settled(held, answer)
            elif isinstance(held, Hold) and isinstance(self._charge.on, Limiter):
                number = used(answer)
                spent = {self._tokens: number} if settle is None and number is not None else settle or {}
                known = {name: one for name, one in spent.items() if name in self._charge.cost}
                if known:  # else it used what it reserved
                    held.settle(**known)
        finally:
            held.release()

    def _leave(self, loop: asyncio.AbstractEventLoop, call_id: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and with it the session
            loop.call_soon_threadsafe(lambda: self._end(call_id, settle={}))
