"""A Spark job of Headgate reads the ledger, and proves that limits held, shows what happened, or proposes settings.

Data goes one way: :mod:`~headgate_pipeline.ledger` (Redis or bytes to columns), the rooms that compute (pure, DataFrame
to DataFrame), :mod:`~headgate_pipeline.cli` (thin: arguments, paths, progress).
"""
