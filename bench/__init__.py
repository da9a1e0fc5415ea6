"""Measurements: what admission, sending, receiving and waiting cost. Run with ``make bench`` or ``python -m bench``."""
