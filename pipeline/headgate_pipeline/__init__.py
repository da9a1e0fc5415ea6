"""Headgate's Spark jobs: the place where the ledger is read, audited and turned into advice.

No job is here yet. The ledger that they will read is already written by the scripts in Redis.
"""
