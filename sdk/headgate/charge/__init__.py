"""A charge is an amount that each call of something takes of a limiter, a gate or a bucket. Doors are built of them."""

from headgate.charge.charges import Charge, Source, SyncCharge, SyncSource
from headgate.charge.held import Held, Kept, answered, failed
from headgate.charge.terms import Cost, Key, Settle, Timeout

__all__ = [
    "Charge", "Cost", "Held", "Kept", "Key", "Settle", "Source", "SyncCharge", "SyncSource", "Timeout", "answered",
    "failed",
]  # fmt: skip
