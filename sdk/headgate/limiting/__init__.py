"""Limits are kept without messages, too: gates for concurrency, buckets for rates, limiters for several limits."""
