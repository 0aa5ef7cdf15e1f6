"""Rules about autocast go by what was measured, and take source's mend where source suspects the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from handmade import FILE, outcome, program, recording, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.autocast import (
    AutocastBackward,
    AutocastError,
    AutocastRegion,
    FunctionOverflow,
    FunctionPrecision,
    HalfLoss,
    HalfOperator,
    RoundedProbabilities,
    StaleWeights,
    ThreadForward,
    UnscaledBackward,
)
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.optimizers import OptimizerUse
from torchvet.recording.records.scaling import ScalingUse
from torchvet.recording.records.training import Ran
from torchvet.rules import rule


def at(line: int, function: str = "train") -> Place:
    return Place(FILE, line, function)


REGION = AutocastRegion(place=at(3), device="cpu", dtype="bfloat16", wanted=True, enabled=True, entered=40, inside=12)


def found(*records: Any, code: str = "AMP", text: str = "", ran: tuple[int, ...] = ()) -> list[Finding]:
    """The findings on forty steps with these records."""
    extra = [Source(path=FILE, text=text), Ran(path=FILE, lines=list(ran))] if text else []
    lines = [program(), *extra, *steps(40), window(1, 2, 3), REGION, *records, outcome(40)]
    return diagnose(recording(*lines), select=[code]).findings


def one(*records: Any, **more: Any) -> Finding:
    (finding,) = found(*records, **more)
    return finding


def copies(kind: Any, changes: int, stale: int) -> StaleWeights:
    return StaleWeights(
        region=at(3), change=at(7), kind=kind, changes=changes, looked=8, stale=stale, deviation=0.5, module="Linear",
        forward=at(5),
    )  # fmt: skip


def test_many_steps_in_a_region_are_told_from_one_between_two_passes() -> None:
    loop, between, loaded = one(copies("step", 40, 8)), one(copies("step", 1, 8)), one(copies("load", 9, 3))
    assert [f.code for f in (loop, between, loaded)] == ["AMP203", "AMP204", "AMP204"]
    assert [f.location and f.location.line for f in (loop, between, loaded)] == [3, 7, 7]
    assert loop.severity == between.severity == "error" and "40 optimizer steps" in loop.message


def test_fresh_copies_are_no_finding() -> None:
    assert found(copies("step", 40, 0), copies("load", 1, 0)) == []


def test_the_last_totals_count() -> None:
    assert "40 optimizer steps" in one(copies("step", 3, 3), copies("step", 40, 8)).message


@pytest.mark.parametrize(("full", "severity"), [(4, "warning"), (0, "info")])
def test_backward_in_a_region_is_graded_by_what_had_run_in_float32(full: int, severity: str) -> None:
    seen = AutocastBackward(
        place=at(6), region=at(3), dtype="bfloat16", calls=40, looked=6, products=12, full=full
    )  # fmt: skip
    assert one(seen).severity == severity


def half(situation: Any, operator: str = "log_softmax", line: int = 5, **more: Any) -> HalfOperator:
    facts: dict[str, Any] = {"dtype": "float16", "calls": 6, "error": 0.004, "loss": True, **more}
    return HalfOperator(place=at(line), situation=situation, operator=operator, **facts)


def test_a_half_loss_needs_its_backward() -> None:
    operators = (half("outside"), half("outside", "nll_loss_forward", error=0.001))
    assert found(*operators) == []
    plain = one(*operators, HalfLoss(place=at(6), dtype="float16", calls=40))
    assert plain.code == "AMP201" and "log_softmax, nll_loss_forward off by up to 0.004" in plain.message
    scaled = one(*operators, HalfLoss(place=at(6), dtype="float16", calls=40, scale=65536.0))
    assert "65,536 does not fit" in scaled.message and "fit" not in plain.message


def test_a_region_that_is_off_and_half() -> None:
    seen = one(half("disabled", "exp", loss=False), half("disabled", "sum", loss=False))
    assert (seen.code, seen.severity) == ("AMP205", "warning") and "exp, sum ran in float16" in seen.message
    raised = one(AutocastError(kind="disabled", place=at(5), message="mat1 and mat2", region=at(4)))
    assert (raised.code, raised.severity) == ("AMP205", "error")


def test_a_function_that_died_is_an_error_and_one_that_did_not_worth_knowing() -> None:
    died = AutocastError(kind="function", place=at(9), message="expected m1 and m2", name="Product")
    alive = FunctionPrecision(place=at(8), name="Product", calls=3, dtype="bfloat16")
    assert (one(died).code, one(died).severity, one(alive).severity) == ("AMP206", "error", "info")
    assert one(died, alive).severity == "error"


ELSEWHERE: dict[str, Any] = {"device": "cuda", "dtype": "bfloat16", "wanted": True, "entered": 40, "other": "cpu"}


def test_a_region_for_another_device_is_graded_by_whether_its_device_is_here() -> None:
    here = AutocastRegion(place=at(4), enabled=True, elsewhere=12, **ELSEWHERE)
    away = AutocastRegion(place=at(4), enabled=False, elsewhere=12, **ELSEWHERE)
    both = AutocastRegion(place=at(4), enabled=True, elsewhere=12, inside=1, **ELSEWHERE)
    assert (one(here).severity, one(away).severity, found(both)) == ("warning", "info", [])


def test_a_program_written_for_the_cpu_alone_is_wrong_about_its_region() -> None:
    text = rule("AMP207").BAD
    line = next(n for n, t in enumerate(text.splitlines(), 1) if "autocast" in t)
    away = AutocastRegion(place=at(line, "<module>"), enabled=False, elsewhere=12, **ELSEWHERE)
    assert one(away, text=text, ran=(line,)).severity == "warning"


def test_a_program_of_several_files_that_moves_nothing_is_wrong_about_its_region() -> None:
    text = 'def train(model, x):\n    with torch.autocast("cuda"):\n        return model(x)\n'
    away = AutocastRegion(place=at(2), enabled=False, elsewhere=12, **ELSEWHERE)

    def severity(main: str, region: str = text) -> str:
        return one(away, Source(path="/project/main.py", text=main), text=region, ran=(2,)).severity

    assert severity("train(nn.Linear(2, 2), x)") == "warning"
    assert severity("train(nn.Linear(2, 2).to(device), x)") == "info"
    assert severity("train(nn.Linear(2, 2), x)", text.replace('"cuda"', "device")) == "info"


def test_a_thread_is_found_at_the_region_that_waits_for_it() -> None:
    seen = one(ThreadForward(place=at(20, "work"), region=at(3), dtype="bfloat16", calls=3, module="Linear"))
    assert (seen.code, seen.location and seen.location.line, seen.related[0].line) == ("AMP208", 3, 20)


def test_rounded_probabilities_are_a_warning_and_others_worth_knowing() -> None:
    def seen(rounded: bool) -> Finding:
        facts: dict[str, Any] = {"dtype": "bfloat16", "calls": 3, "elements": 300, "saturated": 2, "rounded": rounded}
        return one(RoundedProbabilities(place=at(5), region=at(3), **facts))

    assert (seen(True).severity, seen(False).severity) == ("warning", "info")
    assert "2 of 300" in seen(True).message


@pytest.mark.parametrize(("lost", "severity"), [(900, "error"), (100, "warning"), (10, "info")])
def test_a_missing_scaler_is_graded_by_what_was_lost(lost: int, severity: str) -> None:
    use = OptimizerUse(id=1, name="SGD", place=at(2), step_place=at(7), steps=40)
    seen = UnscaledBackward(
        place=at(6), region=at(3), calls=40, looked=4, elements=1000, lost=lost, gradients=100, zeros=7
    )  # fmt: skip
    assert one(use, seen).severity == severity
    assert f"{lost / 1000:.1%}" in one(use, seen).message and "7.0%" in one(use, seen).message
    assert found(seen) == [], "nothing is trained"


def test_a_needless_scaler_needs_regions_that_are_all_bf16() -> None:
    def use(*regions: AutocastRegion, **changes: Any) -> list[Finding]:
        given = {"enabled": True, "steps": 40, "step_place": at(7), **changes}
        return found(ScalingUse(id=0, name="GradScaler", place=at(2), device="cpu", **given), *regions)

    half = AutocastRegion(place=at(4), device="cpu", dtype="float16", wanted=True, enabled=True, entered=40, inside=9)
    (needless,) = use()
    assert needless.severity == "info" and needless.location is not None and needless.location.line == 7
    assert use(half) == use(half_parameters=True) == use(steps=0) == []
    assert len(use(msgspec.structs.replace(half, enabled=False))) == 1


def test_a_suspicion_that_the_run_saw_at_work_gives_its_fix() -> None:
    text = rule("AMP201").BAD
    line = next(n for n, t in enumerate(text.splitlines(), 1) if "criterion(" in t and "=" in t)
    ran = (line, line - 1, line + 2)
    seen = half("outside")
    here = HalfOperator(place=at(line, "<module>"), situation=seen.situation, operator="log_softmax", dtype="bfloat16",
                        calls=6, loss=True, error=0.004)  # fmt: skip
    loss = HalfLoss(place=at(line + 2, "<module>"), dtype="bfloat16", calls=40)
    joined = one(here, loss, text=text, ran=ran, code="AMP201")
    assert joined.evidence == "observed" and [e.text for e in joined.remedy.edits] == ["logits.float()"]
    (alone,) = found(text=text, ran=ran, code="AMP201")
    assert (alone.evidence, alone.severity) == ("suspected", "info")


def test_a_suspicion_at_a_line_that_calls_the_loss_is_the_same_fault() -> None:
    text = rule("AMP201").BAD.replace("loss = criterion(logits, y)", "loss = criterion(logits, y)  # called")
    line = next(n for n, t in enumerate(text.splitlines(), 1) if "# called" in t)
    inside = half("outside", line=2, dtype="bfloat16", callers=[at(line, "<module>")])
    loss = HalfLoss(place=at(line + 2, "<module>"), dtype="bfloat16", calls=40)
    assert one(inside, loss, text=text, ran=(line,), code="AMP201").evidence == "observed"


@pytest.mark.parametrize(("overflowed", "severity"), [(5, "warning"), (2, "warning"), (1, "info")])
def test_a_sum_that_overflows_in_a_function_now_and_then_is_information(overflowed: int, severity: str) -> None:
    seen = FunctionOverflow(
        place=at(9, "Scale.forward"), name="Scale", operator="sum", calls=7, overflowed=overflowed,
        elements=32 * overflowed, infinite=14,
    )  # fmt: skip
    finding = one(seen)
    assert (finding.code, finding.severity) == ("AMP206", severity)
    assert finding.location is not None and finding.location.line == 9
    assert f"{overflowed} of 7 sampled calls" in finding.message and "custom_fwd" in finding.remedy.summary
