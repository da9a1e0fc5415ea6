"""The limits of limiters: as they are written, as the state keeps them, and the time zones of their quotas."""

from headgate.core.limits.limit import MOST_LIMITS, Limit, limits_of

__all__ = ["MOST_LIMITS", "Limit", "limits_of"]
