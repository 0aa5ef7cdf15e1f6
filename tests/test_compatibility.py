"""docs/compatibility.md says what the kept runs of the contract suite say."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "compatibility"
TABLE = FOLDER / "table.py"


def test_the_page_is_fresh() -> None:
    assert subprocess.run([sys.executable, str(TABLE), "--check"]).returncode == 0, "run `make compatibility`"


def test_what_is_refused_or_late_does_not_count_as_kept() -> None:
    contract = runpy.run_path(str(FOLDER / "contract.py"))
    states = ["yes", "yes", "refused", "late", "no"]
    results = [contract["Kept"](str(number), state) for number, state in enumerate(states)]
    assert contract["summed"](results) == "2 of 5 kept, 1 refused, 1 without an answer, 1 not kept"
    assert contract["summed"](results[:2]) == "2 of 2 kept"


def test_a_reason_stands_once_with_all_its_promises() -> None:
    run = {
        "promises": [
            {"promise": "a", "state": "refused", "detail": "takes\nmore"},
            {"promise": "b", "state": "yes", "detail": ""},
            {"promise": "c", "state": "refused", "detail": "takes more"},
        ]
    }
    assert runpy.run_path(str(TABLE))["reasons_of"](run) == ["a, c: takes more"]
