"""Proxies are served by gRPC at the node's port for that, and in JSON for those who have no gRPC."""

from collections.abc import Callable
from typing import Any, Final

import grpc
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from headgate import HeadgateError, InvalidValue
from headgate_coordinator.envoy.decisions import Decisions
from headgate_coordinator.rpc import LARGEST, bears, refuse

_OVER: Final = RateLimitResponse(overall_code=RateLimitResponse.OVER_LIMIT)
REFUSED: Final[bytes] = _OVER.SerializeToString()
"""The answer to what names no key. A proxy sends on what its client wrote, and an error lets that through where it
fails open."""
SERVICE: Final = "envoy.service.ratelimit.v3.RateLimitService"


class NoText(InvalidValue):
    """A value in a request is not UTF-8."""

    def __init__(self) -> None:
        super().__init__("a value is not UTF-8; have the proxy send text", setting="entries")


class RateLimits:
    """`RateLimits` serves proxies.

    Args:
        decisions: that it answers with.
        token: that requests must bear; None for none.
        know: hears the peer of each request that bears it; None where nobody counts strangers.
    """

    def __init__(self, decisions: Decisions, token: str | None, know: Callable[[str], object] | None = None) -> None:
        self._decisions = decisions
        self._token, self._know = token, know

    @property
    def handler(self) -> Any:
        """The service, for a gRPC server; it takes and gives bytes, for most requests have come before."""
        return _Door(self._answer, self._token)

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        await self._decisions.close()

    async def _answer(self, request: bytes, context: Any) -> bytes:
        if self._know is not None:
            self._know(context.peer())
        known = self._decisions.decide_again(request)
        if known is not None:
            return known
        try:
            answer: bytes = (await self._decisions.decide(_read(request), request)).SerializeToString()
        except NoText:
            return REFUSED
        except HeadgateError as error:
            await refuse(context, error)
        return answer

    async def answer_json(self, body: bytes) -> tuple[int, str]:
        """Answer a request in JSON: its status, 200 where it is admitted and 429 where it is not, and the answer.

        Raises:
            HeadgateError: as :meth:`Decisions.decide`; or it is no request.
        """
        if len(body) > LARGEST:
            raise InvalidValue(f"the body is larger than {LARGEST} bytes")
        try:
            request = json_format.Parse(body, RateLimitRequest(), max_recursion_depth=8)
        except (json_format.ParseError, UnicodeDecodeError) as error:
            if isinstance(error, UnicodeDecodeError) or "surrogate" in str(error):  # as REFUSED
                return 429, json_format.MessageToJson(_OVER, indent=None)
            raise InvalidValue(f"the body is not a RateLimitRequest: {error}") from None
        answer = await self._decisions.decide(request)
        status = 200 if answer.overall_code == RateLimitResponse.OK else 429
        return status, json_format.MessageToJson(answer, indent=None)


class _Door:
    """A door lets those in who bear the token, by their first bytes.

    Others may send no message, and would stay for that.
    """

    def __init__(self, answer: Any, token: str | None) -> None:
        self._answer, self._token = grpc.unary_unary_rpc_method_handler(answer), token
        self._turn_away = grpc.stream_unary_rpc_method_handler(_turn_away)

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method != f"/{SERVICE}/ShouldRateLimit":
            return None
        if self._token is None or bears(handler_call_details.invocation_metadata, self._token):
            return self._answer
        return self._turn_away


async def _turn_away(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "send the node's token: authorization: Bearer <token>")


def _read(request: bytes) -> RateLimitRequest:
    try:
        return RateLimitRequest.FromString(request)
    except (DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
            raise NoText from None
        raise InvalidValue("it is not a RateLimitRequest") from None
