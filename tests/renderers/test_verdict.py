"""The one sentence at the top."""

from __future__ import annotations

import msgspec
import pytest

from torchvet.finding import Finding, Measured, NotChecked, Report
from torchvet.renderers.verdict import serious, verdict


def made(report: Report, *findings: Finding, **changes: object) -> Report:
    return msgspec.structs.replace(report, findings=list(findings), **changes)


def test_a_leak_is_named_with_its_rate_and_its_end(report: Report, leak: Finding) -> None:
    assert verdict(made(report, leak)).endswith("keeps 4.2 MB per step alive; out of memory at step 5,700 (24.0 GiB)")


def test_a_rate_of_tensors_that_does_not_explain_the_end_is_not_the_first_line(report: Report, leak: Finding) -> None:
    nodes = msgspec.structs.replace(
        leak,
        message="losses keep graphs of 25 nodes more every step: about 10 kB of host memory, and 12 bytes of tensors",
        measured=Measured(bytes_per_step=12, exhausted_at_step=2_500_000),
    )
    first = verdict(made(report, nodes))
    assert "10 kB of host memory, and 12 bytes of tensors; out of memory at step 2,500,000" in first


def test_an_unknown_limit_is_not_invented(report: Report, leak: Finding) -> None:
    assert verdict(made(report, leak, facts={})).endswith("out of memory at step 5,700")


def test_a_program_that_ran_out_is_not_forecast(report: Report, leak: Finding) -> None:
    facts = {"outcome": {"how": "out-of-memory", "status": 1}, "steps": 40}
    assert verdict(made(report, leak, facts=facts)).endswith("; the program ran out of memory after 40 steps")


def test_what_does_not_grow_is_a_fault_and_no_leak(report: Report, leak: Finding) -> None:
    wrong = msgspec.structs.replace(leak, measured=Measured(), severity="warning", message="gradients add up.")
    assert verdict(made(report, wrong)) == "1 fault: gradients add up"
    assert verdict(made(report, wrong, leak)).startswith("2 faults, the worst: `trainer.stats.losses` keeps")


def test_the_gravest_comes_first_and_else_the_order_stays(report: Report, leak: Finding, note: Finding) -> None:
    mild = [msgspec.structs.replace(leak, severity="warning", code=code) for code in ("MEM102", "MEM103")]
    assert [f.code for f in serious(made(report, note, *mild, leak))] == ["MEM101", "MEM102", "MEM103"]


def test_notes_alone_are_no_fault(report: Report, note: Finding) -> None:
    assert verdict(made(report, note)) == "No fault found in 300 steps; 1 note below"


def test_a_clean_report_says_which_line_takes_most_of_a_step(report: Report, note: Finding) -> None:
    def line(number: int, share: float) -> dict[str, object]:
        return {"path": "train.py", "line": number, "share": share}

    slow = {"steps": 300, "time": {"lines": [line(31, 0.2), line(46, 0.614)]}}
    assert verdict(made(report, facts=slow)) == "No fault found in 300 steps; 61 % of a step's time is at train.py:46"
    assert verdict(made(report, note, facts=slow)).endswith("is at train.py:46; 1 note below")
    even = {"steps": 300, "time": {"lines": [line(31, 0.2), line(46, 0.2)]}}
    assert verdict(made(report, facts=even)) == "No fault found in 300 steps"


def test_a_failure_that_nothing_explains_is_said(report: Report) -> None:
    failed = {"outcome": {"how": "exception", "status": 1, "error": "RuntimeError: it\nbroke"}, "steps": 1}
    assert (
        verdict(made(report, facts=failed))
        == "No cause found in 1 step, but the program failed: RuntimeError: it broke"
    )
    failed["outcome"]["place"] = {"path": "train.py", "line": 44, "function": "main"}  # type: ignore[index]
    assert "but the program failed at train.py:44 in main: RuntimeError" in verdict(made(report, facts=failed))
    unearned = made(report, facts={**failed, "verdict": {"earned": False, "reason": "1 step is too few"}})
    assert verdict(unearned).startswith("No cause found in 1 step, but the program failed at train.py:44 in main")
    failed["outcome"] = {"how": "exception", "status": 1, "error": "E: " + "word " * 100}
    assert len(verdict(made(report, facts=failed))) < 250


@pytest.mark.parametrize(
    ("unchecked", "facts", "expected"),
    [
        ([NotChecked(check="steps", reason="torch was never imported")], {}, "torch was never imported"),
        ([], {"outcome": {"how": "killed", "status": -9}}, "killed"),
        ([], {}, "nothing was recorded"),
    ],
)
def test_undetermined_says_why(unchecked: list[NotChecked], facts: dict[str, object], expected: str) -> None:
    report = Report(subject={}, verdict="undetermined", not_checked=unchecked, facts=facts)
    assert verdict(report) == f"Could not judge: {expected}"
