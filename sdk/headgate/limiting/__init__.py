"""Limits without messages: gates for concurrency, buckets for rates."""
