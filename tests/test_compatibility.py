"""docs/compatibility.md says what the kept runs of the contract suite say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).parent / "compatibility" / "table.py"


def test_the_page_is_fresh() -> None:
    assert subprocess.run([sys.executable, str(TABLE), "--check"]).returncode == 0, "run `make compatibility`"
