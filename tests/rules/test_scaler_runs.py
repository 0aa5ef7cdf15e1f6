"""Rules about gradient scalers grade by what a run has measured."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import outcome, program, recording, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import Recording
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.scaling import ScalingFault, ScalingUse
from torchvet.recording.records.training import Outcome, Ran
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "/home/u/train.py"
LINE = Place(FILE, 9, "train")


def run(*records: Any, end: Outcome | None = None) -> Recording:
    """A run of forty steps, looked at."""
    return recording(program(), steps(40), window(1, 2, 3), *records, end or outcome(40))


def use(**changes: Any) -> ScalingUse:
    """A scaler that has stepped forty times."""
    given = {"steps": 40, "updates": 40, "initial": 65536.0, "scale": 65536.0, "lowest": 65536.0, "step_place": LINE}
    return ScalingUse(id=0, name="GradScaler", place=LINE, device="cpu", enabled=True, **{**given, **changes})


def of(code: str, *records: Any, end: Outcome | None = None) -> list[Finding]:
    return list(rule(code).in_recording(run(*records, end=end)))


def severities(code: str, *records: Any, end: Outcome | None = None) -> list[str]:
    return [f.severity for f in of(code, *records, end=end)]


def fault(kind: Any, **changes: Any) -> ScalingFault:
    given = {"count": 40, "applied": 40, "steps": 40, "scale": 1024.0}
    return ScalingFault(kind=kind, scaler=0, place=LINE, **{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"skipped": 4, "early": 4, "longest": 4, "lowest": 4096.0}, []),
        ({"skipped": 3, "longest": 1}, []),
        ({"skipped": 12, "early": 12, "longest": 12, "trailing": 12, "lowest": 16.0}, []),
        ({"skipped": 20, "longest": 20, "trailing": 20, "lowest": 1.0, "scale": 1.0}, ["error"]),
        ({"skipped": 6, "longest": 6, "trailing": 6, "lowest": 0.5, "scale": 0.5}, ["error"]),
        ({"skipped": 24, "longest": 24, "lowest": 0.01}, ["warning"]),
        ({"skipped": 12, "early": 1, "longest": 1}, ["warning"]),
        ({"skipped": 12, "early": 1, "longest": 1, "interval": 4}, []),
    ],
)
def test_skips_are_graded_by_how_many_follow_each_other(changes: dict[str, Any], expected: list[str]) -> None:
    assert severities("AMP118", use(**changes)) == expected


def test_how_far_the_weights_are_from_poison_is_counted() -> None:
    (found,) = of("AMP118", use(skipped=40, longest=40, trailing=40, scale=65536.0 * 2.0**-40, lowest=0.1))
    assert "104 more in a row" in found.message
    (found,) = of("AMP118", use(skipped=200, longest=200, trailing=200, scale=2.0**-130, lowest=0.0))
    assert "has overflowed" in found.message


@pytest.mark.parametrize(("spent", "whole", "expected"), [(0, 40, []), (2, 40, ["info"]), (10, 40, ["warning"])])
def test_a_schedule_loses_little_or_much(spent: int, whole: int, expected: list[str]) -> None:
    assert severities("AMP116", use(schedule_spent=spent, schedule_steps=whole, schedule_place=LINE)) == expected


def test_a_threshold_that_never_acted_is_worth_knowing_only() -> None:
    assert severities("AMP101", fault("clipped-while-scaled", limit=1e6, norm=500.0, bit=0)) == ["info"]
    (found,) = of("AMP101", fault("clipped-while-scaled", limit=1.0, norm=500.0, bit=40, needed=0))
    assert found.severity == "error" and "acts as 0.00098" in found.message and "40 of them" in found.message
    (found,) = of("AMP101", fault("clipped-while-scaled", limit=1.0, norm=500.0, looked=8, bit=8, needed=3))
    assert "in 8 of the 8 looked at, of 40 steps; 5 of them" in found.message
    (found,) = of("AMP101", fault("clipped-while-scaled", limit=1.0, norm=500.0, looked=40, bit=40, needed=40))
    assert found.message.endswith("in 40 of 40 steps")


@pytest.mark.parametrize(("code", "kind"), [
    ("AMP103", "added-after-unscale"), ("AMP105", "update-before-step"), ("AMP106", "applied-scaled"),
    ("AMP107", "not-scaled"), ("AMP112", "divided-twice"),
])  # fmt: skip
def test_what_changed_no_update_is_no_error(code: str, kind: str) -> None:
    assert severities(code, fault(kind, factor=1.0, changed=0)) == ["info"]
    assert severities(code, fault(kind, factor=1024.0, changed=40)) == ["error"]


def test_what_was_divided_again_after_an_update_has_two_calls_to_move() -> None:
    (moved,) = of("AMP104", fault("scale-changed", factor=1 / 1024, changed=40))
    assert "unscale_" in moved.cause and "unscale_" in moved.remedy.summary
    (moved,) = of("AMP104", fault("scale-changed", factor=0.5, changed=40))
    assert "unscale_" not in moved.cause and "unscale_" not in moved.remedy.summary


def test_an_update_between_counts_where_the_scale_has_changed() -> None:
    assert severities("AMP109", fault("update-between", factor=1.0)) == ["info"]
    assert severities("AMP109", fault("update-between", factor=2.0, changed=4)) == ["warning"]
    assert severities("AMP109", fault("update-between", factor=1 / 1024, changed=40)) == ["error"]


def test_what_torch_refuses_is_an_error_only_if_the_program_ended_by_it() -> None:
    refusal = fault("refused", method="unscale_", error="RuntimeError: unscale_() has already been called on this "
                    "optimizer since the last update().")  # fmt: skip
    assert severities("AMP102", refusal) == ["info"]
    ended = Outcome(how="exception", status=1, ticks=40, seconds=1.0, error=refusal.error)
    assert severities("AMP102", refusal, end=ended) == ["error"]


@pytest.mark.parametrize(
    ("waiting", "after", "status", "expected"),
    [(True, 0, 3, "error"), (True, 0, 0, "warning"), (True, 12, 3, "info"), (False, 0, 3, "info")],
)
def test_a_refusal_that_was_caught_counts_where_nothing_trained_after_it(
    waiting: bool, after: int, status: int, expected: str
) -> None:
    refusal = fault("refused", method="step", error="ValueError: Attempting to unscale FP16 gradients.", applied=0,
                    waiting=waiting, after=after)  # fmt: skip
    (found,) = of("AMP113", refusal, end=Outcome(how="exit", status=status, ticks=40, seconds=1.0))
    assert found.severity == expected
    assert ("no optimizer has stepped since" in found.message) is (expected != "info")


def test_new_scalers_are_graded_by_what_they_learn_again() -> None:
    assert severities("AMP110", use(made=5, replaced=4, relearned=28)) == ["warning"]
    assert severities("AMP110", use(made=5, replaced=4, steps=5000)) == ["info"]
    assert severities("AMP110", use(made=40, replaced=39)) == ["warning"]
    assert severities("AMP110", use(made=5)) == []


def test_a_scaler_that_is_off_matters_under_fp16() -> None:
    off = {"id": 0, "name": "GradScaler", "place": LINE, "device": "cpu", "enabled": False, "steps": 40}
    assert severities("AMP119", ScalingUse(**off, asked=False, half=False)) == []
    assert severities("AMP119", ScalingUse(**off, asked=True, half=False)) == ["info"]
    (found,) = of("AMP119", ScalingUse(**off, asked=False, half=True, zeros=0.25))
    assert found.severity == "warning" and "25% of the gradients" in found.message


@pytest.mark.parametrize("code", ["AMP101", "AMP103", "AMP106", "AMP107", "AMP108"])
def test_a_run_confirms_what_source_suspects_and_keeps_its_fix(code: str) -> None:
    subject = rule(code)
    (suspicion,) = subject.in_source(SourceFile(FILE, subject.BAD))
    assert suspicion.location is not None
    kinds = {"AMP101": "clipped-while-scaled", "AMP103": "added-after-unscale", "AMP106": "applied-scaled",
             "AMP107": "not-scaled", "AMP108": "scaled-twice"}  # fmt: skip
    at = Place(FILE, suspicion.location.line, "<module>")
    seen = ScalingFault(kind=kinds[code], scaler=0, place=at, count=40, applied=40, changed=40, factor=9.0, limit=1.0,
                        bit=40, norm=9.0, scale=9.0)  # type: ignore[arg-type]  # fmt: skip
    lines = Ran(path=FILE, lines=list(range(1, 40)))
    report = diagnose(run(Source(path=FILE, text=subject.BAD), lines, use(), seen))
    (found,) = [f for f in report.findings if f.code == code]
    assert found.evidence == "observed" and found.severity == "error"
    assert found.remedy.edits == suspicion.remedy.edits


def test_a_suspicion_that_a_run_could_have_confirmed_is_lowered() -> None:
    subject = rule("AMP101")
    assert subject.could_be_measured(run(use()))
    assert not subject.could_be_measured(run(use(steps=2)))
    assert not rule("AMP117").could_be_measured(run(use()))


def test_what_is_advised_is_for_what_was_read() -> None:
    (loss,) = of("AMP117", fault("loss-read"))
    (norm,) = of("AMP117", fault("norm-read"))
    assert "loss" in loss.remedy.summary and "unscale_" not in loss.remedy.summary
    assert "unscale_" in norm.remedy.summary and "loss" not in norm.remedy.summary


def test_a_step_past_the_scaler_is_told_with_the_first_factor_and_what_else_steps_it() -> None:
    past: dict[str, Any] = {"factor": 2.0**40, "first": 65536.0, "updates": 40}
    (found,) = of("AMP106", fault("applied-scaled", **past))
    assert "65,536 times too large at first and 1.1e+12 times too large at the worst" in found.message
    assert found.remedy is not None and "update()" not in found.remedy.summary
    (found,) = of("AMP106", fault("applied-scaled", **past, through=40))
    assert found.remedy is not None and "take this step out" in found.remedy.summary
    (found,) = of("AMP106", fault("applied-scaled", factor=65536.0, first=65536.0))
    assert found.message.endswith("with gradients 65,536 times too large")
    assert found.remedy is not None and "then `scaler.update()` once" in found.remedy.summary
