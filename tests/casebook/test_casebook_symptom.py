"""What shows of a fault by itself is told from what the programs do, and nothing is made up where they do the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from casebook.case import Case, Expectation
from casebook.count import Count
from casebook.run import Means, Run
from casebook.score import Observation
from casebook.symptom import ending, growth, last_line, no_numbers, symptom


def observed(stdout: str, status: int = 0, complaint: str = "") -> Observation:
    """A program that prints this."""
    return Observation("any", Run(status, stdout, None, complaint), Run(0, ""))


@pytest.mark.parametrize(
    ("faulty", "fixed", "said"),
    [
        (Run(1, "", None, "RuntimeError: no"), Run(0, ""), "ends with RuntimeError"),
        (Run(3, "", None, ""), Run(0, ""), "exit status 3"),
        (Run(1, "", None, "RuntimeError: no"), Run(1, "", None, "RuntimeError: no"), ""),
        (Run(0, ""), Run(0, ""), ""),
    ],
)
def test_an_ending_that_only_the_faulty_program_has(faulty: Run, fixed: Run, said: str) -> None:
    assert ending(faulty, fixed) == said


def test_numbers_that_are_none() -> None:
    assert no_numbers("loss 1.0\nloss nan\n", "loss 1.0\n") == "prints nan in line 2"
    assert no_numbers("loss -inf\n", "") == "prints -inf in line 1"
    assert no_numbers("loss nan\n", "loss inf\n") == ""
    assert no_numbers("information: finance, nan.py\n", "") == ""


def test_growth_and_peaks() -> None:
    flat, leak = Count("optimizer", [1000] * 40, 5000), Count("optimizer", [100 * i for i in range(40)], 5000)
    assert growth(leak, flat) == "100 bytes per step (fixed: 0)"
    assert growth(leak, leak) == ""
    assert growth(flat, flat) == ""
    assert growth(Count("optimizer", [1000] * 40, 9000), flat) == "peak of 9,000 bytes (fixed: 5,000)"


def test_the_last_line_where_nothing_else_differs() -> None:
    assert last_line("a\nloss 2\n", "a\nloss 1\n") == "prints “loss 2” (fixed: “loss 1”)"
    assert last_line("loss 1\n", "loss 1\n") == ""
    assert last_line("", "loss 1\n") == "prints “nothing” (fixed: “loss 1”)"


def test_what_is_not_measured_is_said(tmp_path: Path) -> None:
    same = observed("loss 1\n")
    means = Means()
    plain = Case(tmp_path, Expectation("AMP101", "error", "x"))
    assert symptom(plain, same, same, means) == "not measured"
    card = Case(tmp_path, Expectation("DEV101", "error", "x", command=["run", "--simulate-gpu", "24GiB"]))
    assert symptom(card, observed("", 1, "RuntimeError: no"), same, means) == "not measured: the program needs a GPU"
    assert symptom(plain, observed("", 1, "RuntimeError: no"), same, means) == "ends with RuntimeError"
