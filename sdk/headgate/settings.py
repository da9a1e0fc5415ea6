"""What can be set for one destination, checked and spelled as the state keeps it."""

from dataclasses import dataclass
from typing import Literal

from headgate.errors import PolicyError
from headgate.units import Unlimited, parse_limit, parse_rate, parse_size

Kind = Literal["queue", "topic", "gate", "bucket"]
KINDS = ("queue", "topic", "gate", "bucket")
LEDGER_LEVELS = ("all", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a destination; None leaves a setting as it is, or at its default.

    Attributes:
        kind: ``queue``, ``topic``, ``gate`` or ``bucket``; fixed once the destination exists.
        limit: bytes that may be pending and leased, or ``"unlimited"``.
        limit_messages: the same in messages; the first of the two to be reached counts.
        rate: of a bucket, tokens a second.
        burst: of a bucket, tokens at once; one second's worth (at least 1) when only the rate is given.
        ledger: ``all`` keeps an entry for every change, ``off`` none.
        ledger_keep: entries that are kept at least, about.
    """

    kind: Kind | None = None
    limit: int | str | None = None
    limit_messages: int | Unlimited | None = None
    rate: float | str | None = None
    burst: int | None = None
    ledger: str | None = None
    ledger_keep: int | None = None

    def fields(self) -> dict[str, str]:
        """Return the settings as the state's fields.

        Raises:
            PolicyError: a combination that means nothing.
            InvalidValue: a value that cannot be read.
        """
        out: dict[str, str] = {}
        if self.kind is not None:
            if self.kind not in KINDS:
                raise PolicyError(f"kind: {self.kind!r}; use {', '.join(KINDS)}")
            out["kind"] = self.kind
        if self.limit is not None:
            out["limit_bytes"] = str(parse_limit(self.limit, "limit"))
        if self.limit_messages is not None:
            out["limit_messages"] = str(parse_limit(self.limit_messages, "limit_messages"))
        if self.rate is not None or self.burst is not None:
            out |= self._bucket()
        if self.ledger is not None:
            if self.ledger not in LEDGER_LEVELS:
                raise PolicyError(f"ledger: {self.ledger!r}; use {' or '.join(LEDGER_LEVELS)}")
            out["ledger"] = self.ledger
        if self.ledger_keep is not None:
            out["ledger_keep"] = str(parse_size(self.ledger_keep, "ledger_keep"))
        return out

    def _bucket(self) -> dict[str, str]:
        if self.kind not in (None, "bucket"):
            raise PolicyError(f"rate and burst belong to a bucket, not to a {self.kind}")
        if self.rate is None:
            raise PolicyError("burst without rate; give both")
        rate = parse_rate(self.rate, "rate")
        burst = parse_size(self.burst, "burst") if self.burst is not None else max(1, int(rate))
        if burst < 1:
            raise PolicyError("burst: 0 admits nothing; use at least 1")
        return {"rate": repr(rate), "burst": str(burst)}
