"""Stores: what is kept in Redis beside destinations, each behind the calls that reach it."""
