"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from observing import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A fresh folder to run programs in."""
    return Bench(tmp_path)
