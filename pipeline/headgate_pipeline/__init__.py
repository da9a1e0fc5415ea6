"""Headgate's Spark jobs: they read the ledger, prove that limits held, show what happened, and propose better settings.

Data goes one way: :mod:`~headgate_pipeline.ledger` (bytes of the ledger to columns), the sources, the transforms
(pure, DataFrame to DataFrame), the jobs (thin: arguments, paths, progress), the command line.
"""
