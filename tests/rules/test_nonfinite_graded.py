"""How grave a loss that is not finite is, and which rule speaks of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from handmade import outcome, program, recording, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording import Recording
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals, Operand
from torchvet.recording.records.numeric import HalfOptimizer, HalfPositions, Poisoned

PLACE = Place("/home/user/train.py", 5, "step")
TICKS = 40


def run(*records: Record) -> Recording:
    return recording(program(), window(1, 5, 9), steps(TICKS), *records, outcome(ticks=TICKS))


def found(*records: Record) -> list[tuple[str, str]]:
    return [(f.code, f.severity) for f in diagnose(run(*records)).findings]


def empty_mean(tick: int) -> NonFinite:
    return NonFinite(
        tick=tick, symptom="loss", found="operator", reason="empty-reduction", operator="aten.mean.default", place=PLACE
    )


@pytest.mark.parametrize(("losses", "severity"), [(1, "info"), (2, "info"), (3, "warning"), (30, "warning")])
def test_a_loss_that_is_not_finite_again_and_again_is_no_accident(losses: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=losses, first_loss=5, last_bad=TICKS - 5, checked=TICKS)
    assert found(empty_mean(5), totals) == [("NUM101", severity)]


@pytest.mark.parametrize(
    ("symptom", "losses", "severity"),
    [("loss", 3, "warning"), ("loss", 2, "info"), ("gradient", 3, "info"), ("gradient", 0, "info")],
)
def test_batches_that_no_scale_saves_are_lost_though_a_scaler_leaves_them_out(
    symptom: Any, losses: int, severity: str
) -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=losses, skipped=6, last_bad=TICKS - 5, checked=TICKS)
    record = NonFinite(
        tick=5, symptom=symptom, found="operator", reason="zero-by-zero", operator="aten.div.Tensor", place=PLACE,
        scale=64.0,
    )  # fmt: skip
    assert found(record, totals) == [("NUM101", severity)]


@pytest.mark.parametrize(
    ("outputs", "passes", "severity"), [(3, 12, "warning"), (2, 12, "info"), (3, 100, "info")]
)  # fmt: skip
def test_an_evaluation_that_gives_nan_again_and_again(outputs: int, passes: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, outputs=outputs, passes=passes, last_bad=TICKS)
    record = NonFinite(
        tick=5, symptom="output", found="operator", reason="masked-row", operator="aten._softmax.default", place=PLACE
    )
    (finding,) = diagnose(run(record, totals)).findings
    assert (finding.code, finding.severity) == ("NUM106", severity)


def spoilt(**changes: Any) -> HalfOptimizer:
    return HalfOptimizer(
        optimizer="AdamW", dtype="float16", place=PLACE, step_place=PLACE, steps=TICKS, parameters=6, of=6, eps=1e-8,
        fused=False, spoilt=6, spoilt_at=1, spoilt_names=["0.weight"], **changes,
    )  # fmt: skip


def test_a_parameter_that_a_step_spoilt_is_said_once() -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=39, first_loss=2, last_bad=TICKS, stepped=39, first_stepped=2)
    later = NonFinite(tick=2, symptom="loss", found="input", reason="bad-parameter", place=PLACE, since=1)
    assert found(later, totals, spoilt()) == [("NUM104", "error")]
    assert found(later, totals) == [("NUM101", "error")]


@pytest.mark.parametrize(
    ("tensor", "constant", "code"),
    [(1.0, 1e9, "NUM105"), (3.0, 1e9, "NUM101"), (1.0, 6e4, "NUM101")],
)  # fmt: skip
def test_a_mask_times_a_constant_is_told_from_any_overflow(tensor: float, constant: float, code: str) -> None:
    operands = [Operand(dtype="float16", shape=(4, 5), largest=tensor, smallest=1.0, zeros=3),
                Operand(dtype="scalar", shape=(), largest=constant)]  # fmt: skip
    record = NonFinite(
        tick=1, symptom="loss", found="operator", reason="overflow", operator="aten.mul.Tensor", place=PLACE,
        operands=operands, result=Operand(dtype="float16", shape=(4, 5), infinities=5),
    )  # fmt: skip
    totals = NonFiniteTotals(tick=TICKS, losses=39, first_loss=1, last_bad=TICKS)
    assert [c for c, _ in found(record, totals)] == [code]


def test_a_share_of_elements_is_no_share_of_the_peak() -> None:
    lost = HalfOptimizer(
        optimizer="SGD", dtype="bfloat16", place=PLACE, step_place=PLACE, steps=TICKS, parameters=6, of=6, eps=None,
        fused=False, looks=20, updates=100, lost=95, followed=10, stuck=9, first=1, last=TICKS,
    )  # fmt: skip
    poisoned = Poisoned(tick=5, clean=4, what="statistics", owner="Net", names=["running_mean"], count=1, of=2, nans=4,
                        infinities=0, place=PLACE)  # fmt: skip
    findings = diagnose(run(lost, poisoned, HalfPositions(
        place=PLACE, dtype="bfloat16", length=512, distinct=385, converted=False, largest=511.0, calls=1,
    ))).findings  # fmt: skip
    assert {f.code for f in findings} == {"NUM104", "NUM108", "NUM109"}
    assert [f.measured.share for f in findings] == [None] * 3


def not_shown(tick: int, **more: Any) -> NonFinite:
    return NonFinite(tick=tick, symptom="loss", found="not-reproduced", place=PLACE, note="no fork", **more)


def test_a_look_at_later_steps_takes_the_place_of_the_failure_that_it_follows() -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=3, first_loss=5, last_bad=TICKS - 5, checked=TICKS)
    explained = msgspec.structs.replace(empty_mean(9), live=4, failed=5, loop={"epoch": 1, "i": 3})
    (one,) = diagnose(run(not_shown(5), explained, totals)).findings
    assert "in step 9 (epoch = 1, i = 3): mean" in one.message
    assert [r.message for r in one.related if r.role == "live"] != []
    (other,) = diagnose(run(not_shown(5), not_shown(5, live=50, failed=5), totals)).findings
    assert "no look at it has shown the operation" in other.message
    assert len(diagnose(run(not_shown(5), totals)).findings) == 1, "a run that is killed while it is looked at"
    assert len(diagnose(run(not_shown(5), explained, not_shown(20), totals)).findings) == 1, "the same line again"
    elsewhere = msgspec.structs.replace(not_shown(20), place=Place("/home/user/train.py", 9, "step"))
    assert len(diagnose(run(not_shown(5), explained, elsewhere, totals)).findings) == 2, "another failure"


@pytest.mark.parametrize(("loop", "words"), [({"it": 4}, "step 5:"), ({"it": 5}, "step 5:"), ({"it": 7}, "(it = 7)")])
def test_the_programs_own_counter_is_said_where_it_says_more(loop: dict[str, int], words: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=3, first_loss=5, last_bad=TICKS - 5, checked=TICKS)
    (one,) = diagnose(run(msgspec.structs.replace(empty_mean(5), loop=loop), totals)).findings
    assert words in one.message


@pytest.mark.parametrize(("nan_losses", "severity"), [(0, "info"), (1, "info"), (2, "warning")])
def test_a_loss_that_is_nan_twice_is_no_matter_of_a_scale(nan_losses: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, losses=2, nan_losses=nan_losses, skipped=2, last_bad=TICKS - 5, checked=TICKS)
    record = empty_mean(5)
    record.scale = 64.0
    assert found(record, totals) == [("NUM101", severity)]


@pytest.mark.parametrize(
    ("left_out", "skipping", "severity"),
    [(1, 0, "info"), (1, 2, "info"), (2, 0, "warning"), (1, TICKS // 2, "warning")],
)
def test_losses_that_are_left_out_are_graded_by_how_many(left_out: int, skipping: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, left_out=left_out, skipping=skipping, last_bad=TICKS - 5, checked=TICKS)
    record = empty_mean(5)
    record.symptom = "skipped"
    assert found(record, totals) == [("NUM101", severity)]


@pytest.mark.parametrize(("skipping", "severity"), [(TICKS // 2, "error"), (TICKS // 4, "warning"), (1, "info")])
def test_batches_that_are_left_out_are_graded_by_their_number(skipping: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, skipping=skipping, left_out=1, last_bad=TICKS - 5, checked=TICKS // 2)
    (one,) = diagnose(run(msgspec.structs.replace(empty_mean(5), symptom="skipped"), totals)).findings
    assert one.severity == severity
    assert (f"{skipping} batches since then" in one.message) == (skipping > 1)


@pytest.mark.parametrize(("ruined", "severity"), [(20, "warning"), (2, "info")])
def test_answers_that_are_nothing_but_nan_need_no_number_taken_of_them(ruined: int, severity: str) -> None:
    totals = NonFiniteTotals(tick=TICKS, outputs=1, passes=30, ruined=ruined, last_bad=TICKS - 5)
    (one,) = diagnose(run(msgspec.structs.replace(empty_mean(5), symptom="output"), totals)).findings
    assert one.severity == severity
