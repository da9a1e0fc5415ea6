"""Damaged conversations by the thousand: no crash, no error but those declared, and no memory that stays."""

import os
import re

import pytest

from tests.support import forked
from tests.support.extent import for_long

LAYERS = ("engine", "node", "sasl", "codec")
GROWTH = 32 << 20
"""Bytes that a process may grow by, however long it runs."""


def play(layer: str, count: int, seed: int, *, timeout: float) -> None:
    process = forked.run(
        "tests.amqp.fuzzing", layer, f"--seed={seed}", f"--count={count}", environment=os.environ, timeout=timeout
    )
    said = process.stdout + process.stderr
    assert process.returncode == 0, said[-3000:]
    assert "Error" not in process.stderr, said[-3000:]
    sizes = [int(size) for size in re.findall(r"rss (\d+)", process.stdout)]
    assert sizes[-1] - sizes[min(1, len(sizes) - 1)] < GROWTH, sizes


@pytest.mark.parametrize("layer", LAYERS)
def test_damaged_conversations_crash_nothing(layer: str) -> None:
    play(layer, 1500, 0, timeout=100)


@pytest.mark.soak
@pytest.mark.parametrize("layer", LAYERS)
def test_up_to_four_hundred_thousand_damaged_conversations_crash_nothing(
    layer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    count = for_long(400_000)
    for start in range(0, count, 50_000):
        with capsys.disabled():
            print(f"\n{layer}: {start} of {count} played", flush=True)
        play(layer, min(50_000, count - start), 1_000_000 + start, timeout=900)
