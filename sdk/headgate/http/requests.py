"""An adapter for requests: requests that wait for a limit."""

from collections.abc import Callable
from typing import Any

from headgate._util.extras import extra
from headgate.charge import Cost, Held, Key, Settle, SyncCharge, SyncSource, Timeout, answered, failed
from headgate.http.fields import read_retry_after

with extra("requests"):
    import requests
    from requests.adapters import HTTPAdapter


class LimitedAdapter(HTTPAdapter):
    """Limits requests, after ``session.mount("https://", LimitedAdapter(limiter, requests=1))``.

    Args:
        on: a limiter, gate or bucket of :mod:`headgate.sync`, or what returns it when a request comes.
        key: for whom; or what returns it, of the ``requests.PreparedRequest``.
        timeout: seconds to wait, or what returns them as for ``key``; the limiter's own when None.
        settle: returns the amounts that were used, of the ``requests.Response``, whose body is not read yet.
        adapter: further arguments of ``requests.adapters.HTTPAdapter``.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the request.

    Raises:
        InvalidValue: such a thing has no such amounts. Requests raise the errors of :meth:`headgate.Limiter.admit`.
    """

    def __init__(
        self, on: SyncSource | Callable[[], SyncSource], *, key: Key = None, timeout: Timeout = None,
        settle: Settle | None = None, adapter: dict[str, Any] | None = None, **cost: Cost,
    ) -> None:  # fmt: skip
        super().__init__(**(adapter or {}))
        self._charge = SyncCharge(on, key=key, timeout=timeout, settle=settle, **cost)

    def send(self, request: requests.PreparedRequest, *args: Any, **named: Any) -> requests.Response:
        """Send it once it is admitted."""
        held = self._charge.admit(request)
        try:
            response = super().send(request, *args, **named)
        except BaseException as error:
            failed(held, error, requests.Timeout)
            raise
        answered(held, response.status_code)
        try:
            seconds = read_retry_after(response.status_code, response.headers.get("retry-after"))
            if seconds is not None:
                self._charge.hold_off(seconds, f"{response.status_code} of {request.url}"[:200], request)
            self._charge.settled(held, response)
        except BaseException:
            response.close()  # nobody else can
            held.release()
            raise
        _release_with(response, self._charge.keep(held))
        return response


def _release_with(response: requests.Response, held: Held) -> None:
    """Release what a request held when its connection goes back: at the end of the body, or on closing the answer."""
    raw: Any = response.raw
    give_back = raw.release_conn

    def release_conn() -> None:
        held.release()
        give_back()

    raw.release_conn = release_conn
    if raw.connection is None:  # the body was so short that it is here
        held.release()
