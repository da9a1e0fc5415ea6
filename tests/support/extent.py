"""How much random tests try: a quarter in `make test`, all where `HEADGATE_TEST_WHOLE` is set, as in `make soak`."""

import os

WHOLE = bool(os.environ.get("HEADGATE_TEST_WHOLE"))


def examples(count: int) -> int:
    """Return how many examples to try of so many."""
    return count if WHOLE else max(count // 4, min(count, 15))
