"""Limiters are served over HTTP: admit, renew, settle, release, state, hold off, for programs of any language."""

import contextlib
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from headgate import CreditTimeout
from headgate.core.limiting.amounts import amounts_text, check_amounts, encode_key
from headgate.core.limiting.samples import Outcome, one_sample
from headgate.core.limits import Limit
from headgate.explain.levels import LimitState
from headgate.http import fields
from headgate.limiting.hold import read_ttl
from headgate.redis.stores.limiters import HoldCall
from headgate_coordinator.admin.operations import AnswerWithHeaders, Call, NoQuery, Operation, Query
from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.holds import Holds, InProgress, see_held
from headgate_coordinator.security import Action

PREFIX: Final = "/v1/limits/{name}"
LONGEST_WAIT: Final = 300.0
"""Seconds that one request may stand in line."""
TTL: Final = 30.0
"""Seconds of a hold's lease, where a request does not say."""
MOST_IN_LINE: Final = 96
"""Requests that may wait at a node, out of its 128 connections: the others are for probes, and for all else."""
MOST_OF_ONE: Final = 48
"""Of these, requests of one user; whoever manages the namespace has no such bound."""
MOST_AMOUNTS: Final = 16


def _amount(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:  # which has an error for each form, under a name of its own
        raise PydanticCustomError(
            "amount", "use a whole number, or a size of up to 30 characters, such as '64KiB'"
        ) from None


Amount = Annotated[StrictInt | Annotated[str, Field(max_length=30)], WrapValidator(_amount)]
Amounts = Annotated[dict[str, Amount], Field(max_length=MOST_AMOUNTS)]
HoldId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_~-]{1,90}\.[1-9][0-9]{0,18}$")]
Key = Annotated[str | None, Field(max_length=255)]
OUTCOME: Final = "how it went, for a limit that adapts; each that is given counts"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AdmitRequest(_Body):
    """An admit request asks a limiter to admit amounts."""

    amounts: Amounts = Field(min_length=1, description="what is reserved, by the names of limits")
    key: Key = Field(None, description="for whom, such as a tenant")
    wait: float = Field(0.0, ge=0, le=LONGEST_WAIT, allow_inf_nan=False, description="most seconds to wait in line")
    ttl: float = Field(TTL, ge=1, le=3600, allow_inf_nan=False, description="seconds of the hold's lease")
    band: Annotated[StrictInt, Field(ge=0, le=7)] | None = Field(
        None, description="0 (first) to 7 (last); by default the urgency of the header Priority, or the key's"
    )
    fail_if_late: bool = Field(False, description="refuse at once what would not be admitted in time")


class RenewRequest(_Body):
    """A renew request asks for a hold to stay."""

    hold: HoldId = Field(description="its id")
    ttl: float = Field(TTL, ge=1, le=3600, allow_inf_nan=False, description="seconds of its lease from now on")


class SettleRequest(_Body):
    """A settle request reports the amounts that a hold used."""

    hold: HoldId = Field(description="its id")
    used: Amounts = Field(min_length=1, description="by the names of limits; limits not named were used in full")
    release: bool = Field(False, description="whether it ends with this")
    outcome: Outcome | None = Field(None, description=OUTCOME)


class ReleaseRequest(_Body):
    """A release request ends a hold."""

    hold: HoldId = Field(description="its id")
    outcome: Outcome | None = Field(None, description=OUTCOME)


class HoldOffRequest(_Body):
    """A hold-off request pauses all admissions."""

    seconds: float = Field(ge=0, le=86_400, allow_inf_nan=False, description="from now on; 0 ends a hold-off")
    reason: str = Field("", max_length=200, description="for people")
    key: Key = Field(None, description="of which alone; all without one")


class LevelsQuery(Query):
    """A levels query asks for the levels of a limiter."""

    key: str | None = Field(None, max_length=255, description="a key, whose own limits are in the answer too")


class Admitted(BaseModel):
    """This answer names the hold that an admission made."""

    limiter: str
    hold: str = Field(description="its id, for renew, settle and release, at any node")
    key: str | None
    amounts: dict[str, int]
    ttl: float = Field(description="seconds until it ends, unless it is renewed")


class Renewed(BaseModel):
    """This answer says that a hold stays."""

    limiter: str
    hold: str
    ttl: float


class Settled(BaseModel):
    """This answer says that a hold was settled: it is known what it used."""

    limiter: str
    hold: str
    counted: bool = Field(description="whether any of it counts: of rates and quotas, the first of what was reserved")
    released: bool


class Released(BaseModel):
    """This answer says that a hold is over."""

    limiter: str
    hold: str
    held: bool = Field(description="whether it was held until now")


class HeldOff(BaseModel):
    """This answer says that a limiter admits nothing for a while."""

    limiter: str
    key: str | None
    seconds: float = Field(description="for which it lasts: of two that overlap the longer one counts")


class State(BaseModel):
    """This answer shows the levels of a limiter."""

    limiter: str
    key: str | None
    limits: dict[str, LimitState]
    key_limits: dict[str, LimitState]
    waiting: int
    keys: int
    held_off: float
    reason: str
    learning: float


class Limits:
    """Answers requests about limiters and holds."""

    def __init__(self, holds: Holds, charge: Callable[[str], Awaitable[str]] | None = None) -> None:
        self._holds, self._charge = holds, charge
        self._in_line: Counter[str] = Counter()
        self.operations: Final = (
            _operation("GET", "", "Return how much of a limiter is taken", self._state, State, query=LevelsQuery),
            _operation(
                "POST", "/admit", "Reserve amounts under all limits at once", self._admit, Admitted, AdmitRequest
            ),
            _operation("POST", "/renew", "Begin a hold's lease again", self._renew, Renewed, RenewRequest),
            _operation("POST", "/settle", "Say what a hold used", self._settle, Settled, SettleRequest),
            _operation("POST", "/release", "End a hold", self._release, Released, ReleaseRequest),
            _operation(
                "POST", "/hold-off", "Have nothing admitted for a while", self._hold_off, HeldOff, HoldOffRequest
            ),
        )

    async def _admit(self, call: Call) -> AnswerWithHeaders:
        body: AdmitRequest = call.body
        if self._charge is not None and (why := await self._charge(call.access.user)):
            raise Refused(429, "quota-exceeded", why, headers={"Retry-After": "1"})
        wait = body.wait if "wait" in body.model_fields_set else min(call.patience or 0.0, LONGEST_WAIT)
        if wait == 0:
            return await self._admitted(call, wait)
        with self._place(call):
            return await self._admitted(call, wait)

    @contextlib.contextmanager
    def _place(self, call: Call) -> Iterator[None]:
        """Have a place in line, for a request that waits; there are that many.

        Raises:
            Refused: none is left.
        """
        user = call.access.user
        crowded = self._in_line[user] >= MOST_OF_ONE and not call.access.manages_all
        if crowded or self._in_line.total() >= MOST_IN_LINE:
            why = f"{MOST_IN_LINE} requests wait in line here, or {MOST_OF_ONE} of yours; ask another node, or later"
            raise Refused(503, "crowded", why, headers={"Retry-After": "1"})
        self._in_line[user] += 1
        try:
            yield
        finally:
            self._in_line[user] -= 1
            if not self._in_line[user]:
                del self._in_line[user]

    async def _admitted(self, call: Call, wait: float) -> AnswerWithHeaders:
        body: AdmitRequest = call.body
        try:
            limiter, hold = await self._holds.admit(
                call.access,
                call.name,
                body.amounts,
                key=body.key,
                wait=wait,
                ttl=body.ttl,
                band=call.priority if body.band is None else body.band,
                fail_if_late=body.fail_if_late,
                idempotency=_repeated(call.idempotency, body),
            )
        except CreditTimeout as error:
            raise await self._exceeded(call, error) from None
        except InProgress as error:
            raise Refused(409, "in-progress", str(error), headers={"Retry-After": "1"}) from None
        if not call.access.may(Action.PRODUCE, call.name):  # not any more: it may have waited for long
            await self._holds.ask(call.access, call.name, HoldCall("release", hold.id))
            raise Refused(403, "access-denied", call.access.refusal(Action.PRODUCE, call.name))
        admitted = Admitted(limiter=call.name, hold=hold.id, key=body.key, amounts=dict(hold.amounts), ttl=body.ttl)
        return AnswerWithHeaders(admitted, _policy(tuple(limiter.limits.values())))

    async def _exceeded(self, call: Call, error: CreditTimeout) -> Refused:
        limiter = await self._holds.limiter(call.access, error.destination)
        state = await limiter.state(key=error.key)
        after = error.retry_after
        headers = fields.policy(limiter.limits.values()) | fields.levels(state, error.limit, after)
        return Refused(
            429, "quota-exceeded", str(error), headers=headers | fields.retry_after(after),
            limiter=error.destination, limit=error.limit, rule=error.rule, key=error.key, amounts=error.amounts,
            waited=error.waited, retry_after=after, **fields.violated(error.limit),
        )  # fmt: skip

    async def _renew(self, call: Call) -> AnswerWithHeaders:
        body: RenewRequest = call.body
        answer = await self._holds.ask(call.access, call.name, HoldCall("renew", body.hold, ttl_ms=read_ttl(body.ttl)))
        see_held(call.name, body.hold, answer)
        return AnswerWithHeaders(Renewed(limiter=call.name, hold=body.hold, ttl=body.ttl))

    async def _settle(self, call: Call) -> AnswerWithHeaders:
        body: SettleRequest = call.body
        limiter = await self._holds.limiter(call.access, call.name)
        used = amounts_text(check_amounts(body.used, limiter.limits))
        answer = await self._holds.ask(call.access, call.name, HoldCall("settle", body.hold, amounts=used))
        see_held(call.name, body.hold, answer)
        last = [*_reported(body), *([HoldCall("release", body.hold)] if body.release else [])]
        if last:
            await self._holds.ask(call.access, call.name, *last)
        settled = Settled(limiter=call.name, hold=body.hold, counted=answer == "ok", released=body.release)
        return AnswerWithHeaders(settled)

    async def _release(self, call: Call) -> AnswerWithHeaders:
        body: ReleaseRequest = call.body
        answer = await self._holds.ask(call.access, call.name, *_reported(body), HoldCall("release", body.hold))
        return AnswerWithHeaders(Released(limiter=call.name, hold=body.hold, held=answer == "ok"))

    async def _hold_off(self, call: Call) -> AnswerWithHeaders:
        body: HoldOffRequest = call.body
        limiter = await self._holds.limiter(call.access, call.name)
        seconds = await limiter.hold_off(body.seconds, reason=body.reason, key=body.key)
        return AnswerWithHeaders(HeldOff(limiter=call.name, key=body.key, seconds=seconds))

    async def _state(self, call: Call) -> AnswerWithHeaders:
        limiter = await self._holds.limiter(call.access, call.name)
        state = await limiter.state(key=call.query.key)
        facts: dict[str, Any] = {name: getattr(state, name) for name in State.model_fields if name != "limiter"}
        answer = State(limiter=call.name, **facts)
        return AnswerWithHeaders(answer, fields.policy(limiter.limits.values()) | fields.levels(state))


def _repeated(word: str, body: AdmitRequest) -> str:
    """Return by what a request is known again: one that asks for something else is another, whatever its word says."""
    if not word:
        return ""
    return "\n".join((word, encode_key(body.key), amounts_text(dict(sorted(check_amounts(body.amounts).items())))))


@functools.lru_cache(256)
def _policy(limits: tuple[Limit, ...]) -> dict[str, str]:
    return fields.policy(limits)


def _reported(body: SettleRequest | ReleaseRequest) -> list[HoldCall]:
    """Return the operation that says how a hold went, if the caller gave that; its time is known to the script."""
    return [HoldCall("sample", body.hold, amounts=one_sample(body.outcome))] if body.outcome else []


def _operation(
    method: Literal["GET", "POST"],
    path: str,
    summary: str,
    run: Callable[[Call], Awaitable[AnswerWithHeaders]],
    answer: type[BaseModel],
    body: type[BaseModel] | None = None,
    *,
    query: type[Query] = NoQuery,
) -> Operation:
    waits = path == "/admit"
    return Operation(method, path, summary, run, (answer,), query, body, PREFIX, Action.PRODUCE, waits)
