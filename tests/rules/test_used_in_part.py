"""MEM104 on passes of which backward uses a part: from what hooks have kept, and not from the module's own output."""

from __future__ import annotations

import pytest
from handmade import FILE, outcome, program, recording, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Place
from torchvet.recording.records.training import EvaluationForward

MIB = 1 << 20


def found(**facts: int) -> list[Finding]:
    use = EvaluationForward(place=Place(FILE, 9, "run"), module="VGG", training_mode=False, **{"calls": 0, **facts})
    report = diagnose(recording(program(), *steps(40), use, outcome(40)))
    return [f for f in report.findings if f.code == "MEM104"]


def test_a_graph_that_is_used_nearly_whole_is_no_finding() -> None:
    assert found(entered=20, left=5 * MIB, peak=100 * MIB) == []


def test_one_place_that_is_used_in_some_passes_is_no_evaluation() -> None:
    """The features of the goal are computed once, by the function that computes those that are compared with it."""
    assert found(calls=3, graph=50 * MIB, entered=20, left=MIB, peak=100 * MIB) == []
    assert [f.severity for f in found(calls=3, graph=50 * MIB, peak=100 * MIB)] == ["warning"]


@pytest.mark.parametrize(("left", "severity"), [(40 * MIB, "warning"), (20 * MIB, "info")])
def test_the_part_that_nothing_uses_is_graded_by_its_bytes(left: int, severity: str) -> None:
    (one,) = found(entered=20, left=left, peak=100 * MIB)
    assert (one.severity, one.measured.bytes) == (severity, left)
    assert "part of the graph" in one.message and "last layer" in one.remedy.summary
