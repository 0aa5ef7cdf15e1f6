"""MEM209: how many losses, and how much of the peak, make it more than a note."""

from __future__ import annotations

import pytest
from handmade import FILE, evidence, outcome, program, recording, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording.records.base import Place
from torchvet.recording.records.training import SummedLosses

MB = 1_000_000


@pytest.mark.parametrize(
    ("parts", "saved", "severity"),
    [
        (8, 8 * MB, "warning"),
        (3, 9 * MB, "info"),  # views of one batch that one loss compares
        (8, 80_000, "info"),
        (2, 8 * MB, ""),
    ],
)
def test_it_is_graded_by_the_losses_and_by_what_they_save(parts: int, saved: int, severity: str) -> None:
    summed = SummedLosses(place=Place(FILE, 7, "train"), parts=parts, saved=saved, largest=saved // parts)
    report = diagnose(
        recording(program(), steps(80), evidence(80), window(3, 9, 9, peak=saved + MB), summed, outcome(80))
    )
    assert [f.severity for f in report.findings if f.code == "MEM209"] == ([severity] if severity else [])
