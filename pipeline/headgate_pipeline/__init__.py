"""Headgate's Spark jobs: they read the ledger, prove that limits held, show what happened, and propose better settings.

Data goes one way: :mod:`~headgate_pipeline.ledger` (Redis or bytes to columns), the rooms that compute (pure, DataFrame
to DataFrame), :mod:`~headgate_pipeline.cli` (thin: arguments, paths, progress).
"""
