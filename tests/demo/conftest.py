"""What tests of commands share."""

import os
from pathlib import Path

import pytest

from tests.demo.command import environment


@pytest.fixture
def without_amqp(tmp_path: Path) -> dict[str, str]:
    """Environment in which the engine cannot be imported, as where the extra `amqp` was not installed."""
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "cproton_ffi.py").write_text("raise ImportError('No module named cproton_ffi')")
    return {"PYTHONPATH": os.pathsep.join([str(hiding), environment()["PYTHONPATH"]])}
