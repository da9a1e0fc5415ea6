"""The limits of limiters: as they are written, as the state keeps them, and the time zones of their quotas."""

from headgate.core.limits.limit import MOST_LIMITS, OF_KINDS, Limit, bounding, check_key_limits, limits_of

__all__ = ["MOST_LIMITS", "OF_KINDS", "Limit", "bounding", "check_key_limits", "limits_of"]
