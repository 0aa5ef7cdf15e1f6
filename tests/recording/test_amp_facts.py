"""Runs under several precisions, side by side: ratios, the verdict in one line, and when AMP211 speaks."""

from __future__ import annotations

import msgspec
import pytest
from handmade import FILE, rank

from torchvet.analysis.amp import Trial, result_of
from torchvet.analysis.amp_facts import amp_facts, summary
from torchvet.finding import Report
from torchvet.recording import Recording
from torchvet.recording.records.amp import AmpMode, AmpRun, Unaligned
from torchvet.recording.records.base import Place
from torchvet.renderers import renderer_for
from torchvet.rules import rule


def run(mode: AmpMode, milliseconds: float, **more: object) -> AmpRun:
    """Ten steps, three slow ones at first."""
    facts = {"device": "cpu", "how": "own", "losses": [1.0] * 10, "place": Place(FILE, 9, "main"), **more}
    seconds = [1.0] * 3 + [milliseconds / 1000] * 7
    return AmpRun(mode=mode, seconds=seconds, **facts)  # type: ignore[arg-type]


def trials(half: float, wanted: str | None = "bfloat16", peak: int = 1000, **more: object) -> list[Trial]:
    return [
        Trial(mode="float32", run=run("float32", 10, wanted=wanted), peak=1000),
        Trial(mode="float16", run=run("float16", half, **more), peak=peak),
        Trial(mode="bfloat16", run=run("bfloat16", half), peak=peak),
    ]


def said(*runs: AmpRun) -> list[str]:
    return [f.severity for f in rule("AMP211").in_recording(Recording([rank(*runs)]))]


def test_medians_leave_the_first_steps_out() -> None:
    result = result_of(trials(20))
    assert result is not None
    assert result.ratio("float16") == pytest.approx(2.0) and result.memory("float16") == 1.0
    assert summary(result) == (
        "On this CPU float16 is 2.0x slower and saves no memory; bfloat16 is 2.0x slower and saves no memory. "
        "These times say nothing about a GPU; sizes do"
    )


def test_what_failed_and_what_diverged_is_said() -> None:
    found = trials(10, losses=[], not_finite=10)
    found[2] = Trial(mode="bfloat16", error="RuntimeError: no kernel")
    text = summary(result_of(found))  # type: ignore[arg-type]
    assert "float16 is as fast as float32 and saves no memory, but its loss is not finite in 10 steps" in text
    assert "bfloat16 could not be measured (RuntimeError: no kernel)" in text


def test_a_loss_that_ends_elsewhere_is_said() -> None:
    text = summary(result_of(trials(5, peak=600, losses=[1.5] * 10)))  # type: ignore[arg-type]
    assert "float16 is 2.0x faster and saves 40 % of the peak, but its loss ends 50 % above float32's" in text


def test_without_a_step_there_is_no_result() -> None:
    assert result_of([Trial(mode=m, error="it failed") for m in ("float32", "float16", "bfloat16")]) is None


@pytest.mark.parametrize(
    ("half", "wanted", "expected"),
    [
        (20, "bfloat16", ["warning"]), (10.2, "bfloat16", ["info"]), (5, "bfloat16", []), (20, None, []),
        (20, "float16", ["warning"]),
    ],
)  # fmt: skip
def test_only_what_the_program_asks_for_and_what_was_measured_counts(
    half: float, wanted: str | None, expected: list[str]
) -> None:
    runs = [t.run for t in trials(half, wanted) if t.run is not None]
    # In the half that it does not ask for it would be worse still: no matter.
    other = "float16" if wanted == "bfloat16" else "bfloat16"
    assert said(*(r for r in runs if r.mode != other)) == expected


def test_runs_that_overlap_are_noise() -> None:
    plain = [run("float32", ms, wanted="bfloat16") for ms in (10, 30)]
    assert said(*plain, run("bfloat16", 25), run("bfloat16", 26)) == ["info"]


def test_hardly_slower_and_a_third_smaller_pays() -> None:
    runs = [run("float32", 10, wanted="bfloat16", peak=900), run("bfloat16", 10.5, peak=600)]
    assert said(*runs) == []


@pytest.mark.parametrize("format", ["text", "markdown", "json"])
def test_every_renderer_shows_it(format: str) -> None:
    found = trials(20, skipped=2, scale=8192.0)
    first = msgspec.structs.replace(found[0].run, unaligned=[Unaligned(name="head.weight", shape=(50257, 768))])  # type: ignore[type-var]
    found[0] = msgspec.structs.replace(found[0], run=first)
    result = result_of(found)
    assert result is not None
    report = Report(subject={"kind": "amp"}, verdict="clean", facts={"amp": amp_facts(result)})
    shown = renderer_for(format).render(report)
    assert ("2.0x slower" in shown and "20.0 ms" in shown) or format == "json"
    assert "head.weight (50257, 768)" in shown or format != "text"
    assert '"time_ratio": 2.0' in shown or format != "json"
